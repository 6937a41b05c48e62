from __future__ import annotations

from dataclasses import replace

import pytest

from kctl.master.reduction import COMMANDS
from kctl.reduce.base import Answer
from kctl.rows.partitions import PartitionRow
from kctl.rows.workers import AgentState
from kctl.rpc.decode import BadResult, decoded
from kctl.rpc.fan_out import Failed
from kctl_agent.replies.block_size import StorageReply, TableReply
from kctl_agent.replies.encode import aged, encoded
from kctl_agent.replies.partitions import PartitionReply, PartitionsReply
from kctl_agent.replies.workers import PingReply, WorkerReply
from kctl_agent.rpc.wire import JsonObject
from tests.replies import NOBODY, outcome_of, parsed, raw, reply_of

ROW: JsonObject = {
    "topic": "orders",
    "partition": 3,
    "start": 0,
    "committed": 10,
    "position": 12,
    "end": 20,
    "last_timestamp": 5.5,
    "generation": 4,
    "age_seconds": 0.5,
}
WRONG: list[tuple[str, JsonObject, str]] = [
    ("block_size", {"pending": "many"}, "Expected `int | null`, got `str` - at `$.pending`"),
    ("block_size", {"full": True}, "got `bool` - at `$.full`"),
    ("describe", {"methods": [{"summary": "without a name"}]}, "missing required field `method` - at `$.methods[0]`"),
    ("describe", {"methods": "all"}, "Expected `array`, got `str` - at `$.methods`"),
    ("kafka_lag", {"rows": [ROW, {**ROW, "end": "20"}]}, "got `str` - at `$.rows[1].end`"),
    ("kafka_lag", {"rows": {}}, "got `object` - at `$.rows`"),
    ("member_leader", {"generation": 1.5}, "got `float` - at `$.generation`"),
    ("member_leader", {"partitions": [{"topic": "orders"}]}, "required field `partition` - at `$.partitions[0]`"),
    ("metadata_brokers", {"rows": [{"host": "b"}]}, "required field `node_id` - at `$.rows[0]`"),
    ("metadata_topics", {"rows": [{"topic": "o", "partition": 0, "isr_nodes": ["1"]}]}, "`$.rows[0].isr_nodes[0]`"),
    ("offset_checker", {"rows": [ROW, 7]}, "Expected `object`, got `int` - at `$.rows[1]`"),
    ("offset_checker", {"rows": [{**ROW, "committed": 2**62}]}, "`int` <= 4611686018427387903 - at `$.rows[0].com"),
    ("offset_checker", {"rows": [{**ROW, "partition": None}]}, "got `null` - at `$.rows[0].partition`"),
    ("ping", {"name": "guest"}, "missing required field `pid`"),
    ("ping", {"pid": True}, "got `bool` - at `$.pid`"),
    ("workers", {"state": 7}, "got `int` - at `$.state`"),
    ("workers", {"events": [{"at": "now", "kind": "x", "text": "y"}]}, "got `str` - at `$.events[0].at`"),
    ("workers", {"sinker": {"handled": -1}}, "Expected `int` >= 0 - at `$.sinker.handled`"),
    ("workers", {"state_seconds": 2.0**62}, "Expected `float` < 4.611686018427388e+18 - at `$.state_seconds`"),
]


@pytest.mark.parametrize(("rpc", "result", "why"), WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_a_wrong_reply_is_a_bad_result_and_names_the_wrong_field(rpc: str, result: JsonObject, why: str) -> None:
    silent = Failed("worker-9", "timeout", "no answer in time")

    outcome = COMMANDS[rpc].decoded(
        replace(outcome_of(Answer("guest", result, 0.1), failed=[silent]), stopped=("worker-1",))
    )

    assert (outcome.answers, outcome.stopped) == ([], ("worker-1",))
    assert [(failure.sender, failure.code) for failure in outcome.failed] == [
        ("guest", "bad_result"),
        ("worker-9", "timeout"),
    ]
    assert why in outcome.failed[0].message


def test_a_partition_is_read_as_it_was_sent() -> None:
    result = COMMANDS["offset_checker"].reduce(
        parsed("offset_checker", [Answer("worker-0", {"rows": [ROW]}, 0.0)]), NOBODY
    )

    assert [*result.rows()] == [PartitionRow("orders", 3, 10, 20, 10, "worker-0", 0.5)]
    [row] = result.json_rows("start", "position", "last_timestamp", "generation")
    assert [row[name] for name in ("start", "position", "last_timestamp", "generation")] == [0, 12, 5.5, 4]


def test_what_is_not_sent_is_unknown_and_what_is_not_known_here_is_ignored() -> None:
    reply = decoded(PartitionsReply, raw({"rows": [{"topic": "orders", "partition": 0, "colour": {"red": [1]}}]}))

    assert reply == PartitionsReply((PartitionReply("orders", 0),))


def test_a_state_of_a_newer_release_is_read_with_the_rest() -> None:
    heard = decoded(PingReply, raw({"pid": 7, "state": "meditating", "mood": "calm"}))

    assert (heard.pid, heard.state) == (7, "meditating")
    assert decoded(PingReply, raw({"pid": 7, "state": "throttled"})).state == AgentState.THROTTLED


def test_half_of_a_surrogate_pair_is_read_as_json_has_it() -> None:
    heard = decoded(WorkerReply, raw({"last_error": "\udcff"}))

    assert heard.last_error == "\udcff"
    with pytest.raises(BadResult, match="not JSON in UTF-8"):
        decoded(WorkerReply, b'{"last_error": "\xff"}')


def test_what_is_kept_grows_older() -> None:
    reply = StorageReply("file:/x", age_seconds=1.0, table=TableReply(7, last_commit_seconds=2.0))

    older = aged(reply, 0.5)

    assert older == StorageReply("file:/x", age_seconds=1.5, table=TableReply(7, last_commit_seconds=2.5))
    assert encoded(reply, 0.5) == encoded(older)
    assert aged(StorageReply("file:/x"), 0.5) == StorageReply("file:/x"), "what is not known has no age"


@pytest.mark.parametrize("rpc", ["block_size", "describe", "metadata_brokers", "metadata_topics", "ping"])
def test_the_fields_of_an_agents_reply_are_printed_by_their_names(rpc: str) -> None:
    sent = reply_of(rpc, 2)

    assert encoded(decoded(COMMANDS[rpc].reply, raw(sent))) == sent
