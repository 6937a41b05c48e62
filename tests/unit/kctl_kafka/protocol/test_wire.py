"""Bytes of the protocol field by field: every byte belongs to a field, and the values are kafka-python's own."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import UsageError
from kctl.kafka.protocol.wire import (
    Frame,
    bytes_of_text,
    frames,
    message_class,
    request_frame,
    requests,
    response_frame,
)

NAMES = st.text(st.characters(codec="utf-8"), max_size=20)


def metadata_request(version: int, topics: list[str]) -> bytes:
    kind = requests()["Metadata"]
    request = kind(
        topics=[kind.MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=False,
        version=version,
    )
    request.with_header(correlation_id=77, client_id="tester")
    data: bytes = request.encode(header=True, framed=True)
    return data


def response(name: str, version: int, **fields: Any) -> bytes:
    found = message_class(requests()[name].API_KEY, is_request=False)
    assert found
    made = found[1](version=version, **fields)
    made.with_header(correlation_id=77)
    data: bytes = made.encode(header=True, framed=True)
    return data


def value_of(frame: Frame, name: str) -> Any:
    return next(field.value for field in frame.fields if field.name == name)


def is_covered(frame: Frame) -> bool:
    """Whether the fields that hold no others lie one after the other from the first byte to the last."""
    covered = bytearray(len(frame.data))
    for field in frame.fields:
        covered[field.offset : field.offset + field.length] = b"\1" * field.length
    return all(covered)


@given(st.integers(0, 13), st.lists(NAMES, max_size=4))
def test_a_request_of_any_version_is_read_to_its_last_byte(version: int, topics: list[str]) -> None:
    frame = request_frame(metadata_request(version, topics))

    assert frame.error is None
    assert is_covered(frame)
    assert (frame.name, frame.version, frame.correlation_id) == ("Metadata", version, 77)
    assert value_of(frame, "client_id") == "tester"
    assert value_of(frame, "length") == len(frame.data) - 4
    assert [field.value for field in frame.fields if field.name == "name"] == topics


@pytest.mark.parametrize("version", range(7))
def test_a_response_of_any_version_is_read_to_its_last_byte(version: int) -> None:
    coordinator: dict[str, Any] = {"node_id": 3, "host": "h", "port": 9092, "error_code": 0, "error_message": None}
    kind = message_class(10, is_request=False)
    assert kind
    fields = coordinator if version < 4 else {"coordinators": [kind[1].Coordinator(key="g", **coordinator)]}

    frame = response_frame(response("FindCoordinator", version, **fields), "FindCoordinator", version)

    assert frame.error is None
    assert is_covered(frame)
    assert (value_of(frame, "node_id"), value_of(frame, "port"), frame.correlation_id) == (3, 9092, 77)


def test_a_response_is_known_by_its_correlation_id() -> None:
    stream = metadata_request(9, ["a"]) + response(
        "Metadata", 9, brokers=[], topics=[], cluster_id="c", controller_id=1
    )

    asked, answered = frames(stream)

    assert (asked.kind, answered.kind, answered.version) == ("request", "response", 9)
    assert value_of(answered, "cluster_id") == "c"


def test_a_response_alone_is_read_when_it_is_named() -> None:
    [frame] = frames(response("Metadata", 4, brokers=[], topics=[], cluster_id="c", controller_id=1), "Metadata", 4)

    assert value_of(frame, "controller_id") == 1


@given(st.binary(max_size=200))
def test_bytes_from_anywhere_are_frames_or_a_sentence(data: bytes) -> None:
    try:
        found = list(frames(data))
    except UsageError:
        return
    assert b"".join(frame.data for frame in found) == data


def test_a_body_that_cannot_be_read_shows_the_fields_before_it() -> None:
    whole = metadata_request(9, ["orders"])
    cut = struct.pack(">i", len(whole) - 6) + whole[4:-2]

    [frame] = frames(cut)

    assert frame.error is not None
    assert value_of(frame, "api_version") == 9


def test_trailing_bytes_are_reported() -> None:
    whole = metadata_request(9, [])
    longer = struct.pack(">i", len(whole) - 3) + whole[4:] + b"\0"

    assert request_frame(longer).error == "1 bytes are left over"


@pytest.mark.parametrize(
    "text",
    [
        "00000012",
        "00 00 00 12",
        "00:00:00:12\n",
        "00000000  00 00 00 12   ....",
        "00000000: 0000 0012  ....",
        "0000\n0012",
    ],
)
def test_hex_is_read_as_tools_print_it(text: str) -> None:
    assert bytes_of_text(text) == b"\x00\x00\x00\x12"


def test_what_is_not_hex_is_named_by_its_line() -> None:
    with pytest.raises(UsageError, match="line 2 is not hex: `hello`"):
        bytes_of_text("00\nhello")
