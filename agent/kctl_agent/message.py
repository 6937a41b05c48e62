"""The message passed to a handler. Uses only the standard library, so that a handler's tests need no other package."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

Headers = tuple[tuple[str, bytes | None], ...]
Decode = Callable[[bytes | None, Headers], Any]


class _Decoding:
    __slots__ = ("_decoded", "_decoded_key")
    _decoded: Any
    _decoded_key: Any
    decode_value: ClassVar[Decode] = staticmethod(lambda data, _: data)
    decode_key: ClassVar[Decode] = staticmethod(lambda data, _: data)
    """The decoders of this process, by `kafka.value_format` and `kafka.key_format`."""


@dataclass(frozen=True, slots=True)
class Message(_Decoding):
    """One Kafka message. `timestamp` is in Unix milliseconds. A null key or value is None, not `b''`."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()
    tries: int = 0
    """Earlier deliveries that were neither acknowledged nor released."""

    @property
    def decoded(self) -> Any:
        """Decodes the value once into Python objects if `kafka.value_format` is Avro or JSON. Otherwise returns bytes.

        Raises Undecodable or RegistryUnusable. Normally, do not catch them. After Undecodable, the message becomes a
        dead letter. After RegistryUnusable, kctl calls the handler again when the schema registry answers.
        """
        if not hasattr(self, "_decoded"):
            object.__setattr__(self, "_decoded", _Decoding.decode_value(self.value, self.headers))
        return self._decoded

    @property
    def decoded_key(self) -> Any:
        """Like `decoded`, but for the key and `kafka.key_format`."""
        if not hasattr(self, "_decoded_key"):
            object.__setattr__(self, "_decoded_key", _Decoding.decode_key(self.key, self.headers))
        return self._decoded_key


def decode_by(value: Decode, key: Decode) -> None:
    _Decoding.decode_value, _Decoding.decode_key = staticmethod(value), staticmethod(key)
