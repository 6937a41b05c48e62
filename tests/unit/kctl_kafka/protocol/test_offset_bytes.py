"""The decoder for blocks reads the same as kafka-python, for any bytes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import ListOffsetsResponse

from kctl.kafka.protocol.offset_bytes import LIST_VERSIONS, PartitionKeys, listed
from kctl.kafka.protocol.raw import UNREADABLE, Raw
from tests.servers.broker_frames import _message

NAMES = st.text(min_size=1, max_size=200)
INT64 = st.integers(-(2**63), 2**63 - 1)
LOGS = st.lists(
    st.fixed_dictionaries(
        {
            "name": NAMES,
            "partitions": st.lists(
                st.fixed_dictionaries(
                    {
                        "partition_index": st.integers(0, 2**31 - 1),
                        "error_code": st.sampled_from([0, 0, 0, 6]),
                        "timestamp": INT64,
                        "offset": INT64,
                        "leader_epoch": st.integers(-1, 100),
                    }
                ),
                max_size=20,
            ),
        }
    ),
    max_size=4,
)


def body(kind: Any, version: int, fields: dict[str, Any]) -> bytes:
    message = _message(kind, fields)
    encoded: bytes = message.encode(version=version)
    return encoded


@given(LOGS, st.sampled_from(LIST_VERSIONS))
def test_offsets_of_logs_are_read_as_kafka_python_reads_them(logs: list[dict[str, Any]], version: int) -> None:
    version = min(version, ListOffsetsResponse.max_version)
    found = list(listed(body(ListOffsetsResponse, version, {"topics": logs}), PartitionKeys()))

    assert [list(zip(*rows, strict=True)) for rows in found] == [
        [((log["name"], each["partition_index"]), each["offset"], each["error_code"]) for each in log["partitions"]]
        for log in logs
    ]


@given(st.binary(max_size=200))
def test_other_bytes_are_rejected_or_read_to_the_end(data: bytes) -> None:
    with suppress(*UNREADABLE):
        list(listed(data, PartitionKeys()))


def test_a_raw_request_is_the_request_but_for_its_answer() -> None:
    from kafka.protocol.consumer import ListOffsetsRequest

    request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[])
    raw = Raw(request)
    raw.API_VERSION = 7
    raw.with_header(correlation_id=3, client_id="kctl")

    assert (raw.API_KEY, request.API_VERSION, raw.header.correlation_id) == (2, 7, 3)
    assert raw.encode(header=True, framed=True) == request.encode(header=True, framed=True)
