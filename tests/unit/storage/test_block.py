import base64
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl_agent.storage.block import CODECS, BadBlock, Block, Columns, binary_column, decode, encode

MESSAGES = st.lists(
    st.tuples(
        st.integers(1, 1000),
        st.integers(0, 2**41),
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=40),
        st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=40,
)


def as_json(headers: list[tuple[str, bytes | None]]) -> bytes:
    """Omits null fields, like Spark's to_json."""
    return json.dumps(
        [{"k": k} if v is None else {"k": k, "v": base64.b64encode(v).decode()} for k, v in headers]
    ).encode()


def columns(messages: list[tuple[object, ...]]) -> Columns:
    steps, timestamps, keys, values, headers = (list(field) for field in zip(*messages, strict=True))
    return Columns(
        np.cumsum(np.array(steps, np.int64)),
        np.array(timestamps, np.int64),
        binary_column(keys),
        binary_column(values),
        binary_column([None if header is None else as_json(header) for header in headers]),
    )


@given(MESSAGES, st.sampled_from(["none", "snappy", "lz4", "zstd"]), st.integers(1, 50), st.data())
def test_messages_come_back(messages: list[tuple[object, ...]], codec: str, size: int, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(messages) - 1))
    end = data.draw(st.integers(begin + 1, len(messages)))
    whole = next(columns(messages).cut((begin, end)))
    messages = messages[begin:end]

    records = []
    for part in whole.split(size):
        first, last = int(part.offsets[0]), int(part.offsets[-1])
        block = Block("t", None, 0, first, last, len(part), encode(part, codec))
        records += block.messages()

    assert [(r.timestamp, r.key, r.value) for r in records] == [m[1:4] for m in messages]
    assert [r.offset for r in records] == whole.offsets.tolist()
    assert [list(r.headers) for r in records] == [m[4] or [] for m in messages]


@pytest.mark.parametrize(
    "damage",
    [
        *(b"", b"KB", b"KB\x02\x00\0\0\0\3"),
        *(head + b"\0\0\0\3\0\0\0\0abc" for head in (b"XX\x02\x00", b"KB\x01\x00", b"KB\x02\x07", b"KB\x02\x00")),
    ],
)
def test_what_is_not_a_block_of_this_version_is_named_so(damage: bytes) -> None:
    with pytest.raises(BadBlock):
        decode(damage, 0, 1)


@pytest.mark.shows("a changed byte of a block is detected")
@given(MESSAGES, st.sampled_from(CODECS), st.data())
def test_changed_and_cut_bytes_are_found(messages: list[tuple[object, ...]], codec: str, data: st.DataObject) -> None:
    whole = columns(messages)
    body = bytearray(encode(whole, codec))
    at = data.draw(st.integers(0, len(body) - 1), "where")
    cut_off = bytes(body[:at])
    body[at] ^= data.draw(st.integers(1, 255), "flipped bits")

    for damaged in (cut_off, bytes(body)):
        with pytest.raises(BadBlock):
            decode(damaged, int(whole.offsets[0]), len(whole))
