"""Sets how `Message.decoded` decodes keys and values in this process."""

from kctl_agent.message import decode_by
from kctl_agent.schemas.formats import Formats


def decode_messages(formats: Formats) -> None:
    if (formats.key, formats.value) == ("bytes", "bytes"):
        return
    from kctl_agent.schemas.decoding import Decoder  # and fastavro, which bytes do not need

    decoder = Decoder(formats)
    decode_by(
        lambda data, headers: decoder.value(data, headers).value, lambda data, headers: decoder.key(data, headers).value
    )
