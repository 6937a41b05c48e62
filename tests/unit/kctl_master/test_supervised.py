from __future__ import annotations

from dataclasses import replace

import pytest

from kctl.master.reduction import WORKERS, with_supervisor
from kctl.master.snapshot import Reduced
from kctl.reduce.base import Answer, BrokerSnapshot
from kctl.rows.workers import WorkerStatus
from kctl_agent.replies.encode import encoded
from kctl_agent.replies.workers import WorkerReply
from kctl_agent.rpc.wire import JsonObject
from tests.replies import parsed

STATUS = WorkerStatus("worker-0", "worker", "running", "starting", 1, 0.5, {}, None, None, "worker-0.log")


def reply_of() -> JsonObject:
    reply: JsonObject = encoded(replace(WorkerReply.starting("worker-0", "worker"), state="running"))
    return reply


def rows(**reported: JsonObject) -> list[JsonObject]:
    answers = parsed("workers", [Answer(name, result, 0.0) for name, result in reported.items()])
    reduced = Reduced(WORKERS.reduce(answers, BrokerSnapshot()), ("worker-0",), (), (), None)
    found: list[JsonObject] = encoded(with_supervisor(reduced, [STATUS]).result)["rows"]
    return found


def test_the_row_of_a_worker_that_is_silent_has_the_same_fields_as_of_one_that_answers() -> None:
    [silent], [answering] = rows(), rows(**{"worker-0": reply_of()})
    assert sorted(silent) == sorted(answering)
    assert answering["state"] == "running"
    unknown = {name for name, value in silent.items() if value is None}
    assert unknown == {*reply_of(), "age_seconds"} - {"name", "kind", "pid", "events"}


def test_an_attached_agent_has_no_supervisor() -> None:
    assert [row["supervisor"] is None for row in rows(notebook=reply_of())] == [True, False]


@pytest.mark.shows("an attached agent cannot take a worker's row by its name")
def test_a_worker_is_named_as_its_socket_whatever_name_it_gives_itself() -> None:
    both = rows(**{"worker-0": reply_of(), "notebook": reply_of()})
    assert [(row["name"], row["supervisor"] is None) for row in both] == [("notebook", True), ("worker-0", False)]
