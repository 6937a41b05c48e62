import itertools
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kctl_agent.errors import BadPayload, BrokenFrame, FrameTooLarge, WireError
from kctl_agent.rpc.wire import (
    HEADER_BYTES,
    MAX_REPLY_BYTES,
    MAX_REQUEST_BYTES,
    Decoder,
    JsonObject,
    encode,
    json_text,
    quote,
)

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
objects = st.dictionaries(st.text(), values, max_size=4)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def decoded(
    data: bytes, cuts: list[int], limit_bytes: int = MAX_REQUEST_BYTES
) -> tuple[list[JsonObject], WireError | None]:
    decoder = Decoder(limit_bytes)
    frames: list[JsonObject] = []
    edges = [0, *sorted(cuts), len(data), len(data)]
    try:
        for begin, end in itertools.pairwise(edges):
            frames += decoder.feed(data[begin:end])
    except WireError as error:
        return frames, error
    return frames, None


@pytest.mark.shows("every split of the bytes gives the same frames")
@settings(max_examples=40)
@given(st.lists(objects, max_size=4), st.none() | st.binary(min_size=4, max_size=40), st.data())
def test_every_split_gives_the_same_frames(messages: list[JsonObject], junk: bytes | None, data: st.DataObject) -> None:
    stream = b"".join(encode(message) for message in messages)
    if junk is not None:
        stream += framed(b"\xff" + junk) + encode({"never": "read"})
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))

    frames, error = decoded(stream, cuts)

    assert (frames, type(error)) == (messages, type(None) if junk is None else BadPayload)


def test_a_bad_frame_behind_good_ones_is_kept_and_raised_by_every_later_feed() -> None:
    decoder = Decoder(MAX_REQUEST_BYTES)

    assert decoder.feed(encode({"id": 1}) + framed(b"nonsense")) == [{"id": 1}]

    assert isinstance(decoder.error, BadPayload)
    for data in (b"", encode({"id": 2})):
        with pytest.raises(BadPayload):
            decoder.feed(data)


def test_a_lone_surrogate_survives_the_wire_as_an_escape() -> None:
    message = {"path": "bad-\udcff-name"}

    assert b"\\udcff" in encode(message)
    assert Decoder(MAX_REPLY_BYTES).feed(encode(message)) == [message]


@pytest.mark.parametrize("limit_bytes", [8, MAX_REQUEST_BYTES, MAX_REPLY_BYTES])
def test_a_frame_larger_than_the_limit_is_rejected_before_its_body_is_read(limit_bytes: int) -> None:
    body = b'{"a":"' + b"x" * (limit_bytes - 8) + b'"}'
    for cuts in ([], [3]):
        assert decoded(framed(body), cuts, limit_bytes) == ([json.loads(body)], None)

    with pytest.raises(FrameTooLarge, match=str(limit_bytes)):
        Decoder(limit_bytes).feed((limit_bytes + 1).to_bytes(HEADER_BYTES, "big"))


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b'"text"', b"17", b"null", b'{"a":1}x', b'{"a":1}{"b":2}'),
        *(b'{"a":%s}' % number for number in (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"9" * 5000)),
        *(b"\xff\xfe", b'{"a":"\xff"}', b'\xef\xbb\xbf{"a":1}', json.dumps({"a": 1}).encode("utf-16")),
        *(b"[" * 100_000, b'{"a":' * 100_000),
    ],
    ids=lambda body: repr(body[:12]),
)
def test_a_body_that_is_not_a_json_object_in_utf_8_is_rejected(body: bytes) -> None:
    with pytest.raises(BadPayload) as caught:
        Decoder(MAX_REQUEST_BYTES).feed(framed(body))

    assert len(str(caught.value)) < 60, "what came in is not echoed"


def test_a_clean_end_and_a_break_inside_a_frame_are_distinguished() -> None:
    frame = encode({"id": 1})
    for size in range(1, len(frame)):
        broken = Decoder(MAX_REQUEST_BYTES)
        broken.feed(frame[:size])
        assert not broken.at_boundary
        with pytest.raises(BrokenFrame):
            broken.end()

    whole = Decoder(MAX_REQUEST_BYTES)
    assert whole.at_boundary
    whole.feed(frame)
    assert whole.at_boundary
    whole.end()


def test_a_message_that_no_peer_could_read_is_not_sent() -> None:
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(BadPayload):
            encode({"lag": value})
    with pytest.raises(FrameTooLarge, match="limit is 10"):
        encode({"text": "x" * 10}, limit_bytes=10)


@given(objects, st.text())
@settings(max_examples=20)
def test_our_encoder_writes_what_the_standard_one_does(message: JsonObject, text: str) -> None:
    assert json_text(message) == json.dumps(message, separators=(",", ":"))
    assert encode(message) == framed(json_text(message).encode())
    assert json.loads(quote(text)) == text
    assert quote(text).isascii()
