from __future__ import annotations

import pytest

from kctl.cli.entry import run
from kctl.kafka.lag import LagRow, read_lag
from tests.servers.scripted_broker import Script, ScriptedBroker
from tests.unit.kctl_kafka.scripts import (
    LOADING,
    LONG,
    connection_to,
    described,
    fetched,
    group,
    listed_offsets,
    member,
)

FIRST, SECOND = ("orders", 0), ("orders", 1)
ENDS = listed_offsets({FIRST: 10, SECOND: 20})
LOADING_GROUP = group("billing", code=LOADING, state="")
SCRIPT: Script = {
    "DescribeGroups": described(group("billing", members=[member("b", orders=[1])])),
    "OffsetFetch": fetched({"billing": {FIRST: 4}}),
    "ListOffsets": ENDS,
}


def test_a_commit_above_the_end_is_no_negative_lag_and_a_log_that_cannot_be_read_an_error() -> None:
    broken = listed_offsets({FIRST: 10}, {SECOND: 56})
    script = {**SCRIPT, "OffsetFetch": fetched({"billing": {FIRST: 11, SECOND: 4}}), "ListOffsets": broken}
    with connection_to(script, topics={"orders": 2}) as (_, connection):
        first, second = read_lag(connection, ["billing"])[0]

    assert (first.log_end_offset, first.lag, first.error) == (10, 0, None)
    assert (second.log_end_offset, second.lag, second.error) == (None, None, "KAFKA_STORAGE_ERROR")


@pytest.mark.usefixtures("soon_over")
def test_a_group_that_loads_until_the_deadline_is_a_problem_and_the_others_have_rows() -> None:
    script: Script = {
        "DescribeGroups": described(LOADING_GROUP, group("audit", state="Empty")),
        "OffsetFetch": fetched({"billing": LOADING, "audit": {FIRST: 10}}),
        "ListOffsets": ENDS,
    }
    with connection_to(script, topics={"orders": 2}, seconds=LONG) as (_, connection):
        rows, problems = read_lag(connection, ["billing", "audit"])

    assert [(row.group, row.lag) for row in rows] == [("audit", 0)]
    assert ["COORDINATOR_LOAD_IN_PROGRESS" in str(each) for each in problems] == [True]


@pytest.mark.usefixtures("soon_over")
def test_offsets_that_could_be_read_are_shown_although_the_members_are_not_known() -> None:
    script = {**SCRIPT, "DescribeGroups": described(LOADING_GROUP)}
    with connection_to(script, topics={"orders": 2}, seconds=LONG) as (_, connection):
        rows, problems = read_lag(connection, ["billing"])

    assert rows == [LagRow("billing", "orders", 0, 4, 10, 6)]
    assert problems == []


@pytest.mark.usefixtures("soon_over")
@pytest.mark.parametrize(
    "words",
    ["lag -g billing", "group billing", "offset-fetch -g billing", "reset-offsets -g billing -t orders --to latest"],
)
def test_no_command_takes_a_group_that_loads_for_a_defect(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    script = {**SCRIPT, "DescribeGroups": described(LOADING_GROUP), "OffsetFetch": fetched({"billing": {}})}
    with ScriptedBroker(script, topics={"orders": 2}) as broker:
        code = run(["kafka", *words.split(), "-b", broker.address, "--timeout", "120"], {})
    error = capsys.readouterr().err

    assert code == 1
    assert "group billing: COORDINATOR_LOAD_IN_PROGRESS" in error
    assert "a defect in kctl" not in error
