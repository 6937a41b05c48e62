import re
import time

import pytest

from kctl.cli.entry import run
from kctl.errors import BrokerUnreachable, GroupMissing, NotAuthorised
from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.groups import describe_groups, list_groups
from kctl.kafka.lag import LagRow, read_lag
from tests.servers.broker_frames import metadata_fields
from tests.servers.scripted_broker import Answers, BreaksFrame, HangsUp, Script, ScriptedBroker, Stalls, Step
from tests.unit.kctl_kafka.scripts import (
    LOADING,
    LONG,
    NOT_COORDINATOR,
    SOON,
    connection_to,
    described,
    fetched,
    group,
    listed_offsets,
    member,
    refused_coordinator,
)

BILLING = group("billing", members=[member("b", orders=[1, 0])])
NO_GROUPS = Answers({"groups": []})


PAUSES = 2


@pytest.fixture
def soon_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """After `PAUSES` pauses, leaves a connection only the reserve of its time, so that each test gets as many tries."""
    pause = ClusterConnection.pause
    pauses: dict[int, int] = {}

    def counted(connection: ClusterConnection) -> None:
        pauses[id(connection)] = pauses.get(id(connection), 0) + 1
        if pauses[id(connection)] >= PAUSES:
            connection.deadline._at = time.monotonic() + connection.deadline.timeout_seconds * 0.19
        pause(connection)

    monkeypatch.setattr(ClusterConnection, "pause", counted)


@pytest.mark.shows("a group that still loads, or that one broker denies, has its own error")
@pytest.mark.usefixtures("soon_over")
def test_a_group_that_still_loads_at_the_deadline_is_described_with_that_error() -> None:
    both = described(group("billing", code=LOADING, state=""), group("audit", state="Empty"))
    with connection_to({"DescribeGroups": both}, seconds=LONG) as (broker, connection):
        groups = describe_groups(connection, ["billing", "audit"])

    assert [(each.group, each.state, each.coordinator) for each in groups] == [
        ("billing", None, 1),
        ("audit", "Empty", 1),
    ]
    assert "COORDINATOR_LOAD_IN_PROGRESS" in str(groups[0].error)
    assert groups[0].members is None
    assert broker.asked.count("DescribeGroups") > 1


NOT_READY = (described(group("billing", code=code, state="")) for code in (LOADING, 15, NOT_COORDINATOR))


@pytest.mark.parametrize("step", [*NOT_READY, HangsUp(), BreaksFrame()])
def test_a_coordinator_that_is_not_ready_or_breaks_off_is_asked_again(step: Step) -> None:
    with connection_to({"DescribeGroups": [step, described(BILLING)]}) as (broker, connection):
        [found] = describe_groups(connection, ["billing"])

    assert (found.state, found.error) == ("Stable", None)
    assert [each.assigned for each in found.members or ()] == [{"orders": (0, 1)}]
    assert "FindCoordinator" in broker.asked or not isinstance(step, Answers)


@pytest.mark.parametrize("step", [HangsUp(), BreaksFrame(), Stalls()])
def test_a_coordinator_that_does_not_answer_in_time_is_an_error_of_the_group(step: Step) -> None:
    with connection_to({"DescribeGroups": step}, seconds=SOON) as (_, connection):
        [found] = describe_groups(connection, ["billing"])

    assert isinstance(found.error, BrokerUnreachable)


def listed(name: str, type_: str) -> Answers:
    return Answers({"groups": [{"group_id": name, "group_state": "Stable", "group_type": type_}]})


NO_SUCH = "there is no group billing (GROUP_ID_NOT_FOUND); `kctl kafka groups` lists them"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (NO_GROUPS, NO_SUCH),
        (Answers({"error_code": LOADING}), "COORDINATOR_LOAD_IN_PROGRESS"),
        (listed("billing", "Streams"), ""),
    ],
    ids=["no broker lists it", "there is no list", "its kind cannot be described"],
)
def test_a_group_that_cannot_be_described_is_missing_only_if_no_broker_lists_it(answer: Answers, error: str) -> None:
    with connection_to({"DescribeGroups": described(), "ListGroups": answer}) as (broker, connection):
        [found] = describe_groups(connection, ["billing"])

    assert isinstance(found.error, GroupMissing) == (error == NO_SUCH)
    assert error in str(found.error)
    assert (found.type, found.state, found.members) == (("streams", "Stable", None) if not error else (None,) * 3)
    assert "ConsumerGroupDescribe" not in broker.asked  # this broker does not announce it


def test_of_several_brokers_a_coordinator_that_denies_a_group_may_be_a_new_one() -> None:
    """A single run cannot wait until the answer is certain."""
    brokers: dict[int, str] = {}
    script: Script = {
        "DescribeGroups": described(),
        "ListGroups": NO_GROUPS,
        "OffsetFetch": fetched({"nobody": {}}),
        "Metadata": Answers(lambda _: metadata_fields(brokers, {})),
    }
    with ScriptedBroker(script) as first, ScriptedBroker(script, node_id=2) as second:
        brokers |= {1: first.address, 2: second.address}
        with ClusterConnection(plain(first.address), LONG) as connection:
            connection.open()
            rows, [problem] = read_lag(connection, ["nobody"])

    assert rows == []
    assert isinstance(problem, GroupMissing)
    assert re.fullmatch(
        r"broker [12] knows no group nobody \(GROUP_ID_NOT_FOUND\): there is none, or this broker has become its "
        "coordinator seconds ago and does not know it yet; ask again to be certain, `kctl kafka groups` lists them",
        str(problem),
    )


def test_a_list_of_groups_has_the_groups_of_the_brokers_that_answer_and_names_the_one_that_does_not() -> None:
    brokers: dict[int, str] = {}
    metadata = Answers(lambda _: metadata_fields(brokers, {}))
    with (
        ScriptedBroker(node_id=2) as dead,
        ScriptedBroker({"ListGroups": listed("billing", "Classic"), "Metadata": metadata}) as broker,
    ):
        brokers |= {1: broker.address, 2: dead.address}
        dead.vanish()
        with ClusterConnection(plain(broker.address), SOON) as connection:
            connection.open()
            groups, problems = list_groups(connection)

    assert [(each.group, each.type, each.coordinator) for each in groups] == [("billing", "classic", 1)]
    assert [dead.address in str(each) for each in problems] == [True]


def test_a_group_that_may_not_be_seen_or_its_coordinator_spoils_no_other() -> None:
    brokers: dict[int, str] = {}
    script: Script = {
        "DescribeGroups": described(group("hidden", code=30, state=""), BILLING),
        "FindCoordinator": refused_coordinator("secret"),
        "Metadata": Answers(lambda _: metadata_fields(brokers, {})),
    }
    with ScriptedBroker(script) as broker, ClusterConnection(plain(broker.address), SOON) as connection:
        brokers |= {
            1: broker.address,
            2: "127.0.0.1:1",
        }  # kctl does not ask for the coordinator in a cluster with one broker
        connection.open()
        hidden, secret, billing = describe_groups(connection, ["hidden", "secret", "billing"])

    assert (type(hidden.error), type(secret.error), secret.coordinator) == (NotAuthorised, NotAuthorised, None)
    assert (billing.state, billing.coordinator) == ("Stable", 1)


@pytest.mark.parametrize(
    ("assignment", "protocol_type", "assigned"),
    [
        (b"", "consumer", {}),
        (b"\x00\x01\xff\xff\xff", "consumer", None),
        (member("b", orders=[0])["member_assignment"], "connect", None),
    ],
    ids=["nothing", "bytes that are none", "of other clients than consumers"],
)
def test_an_assignment_that_cannot_be_read_is_not_known(
    assignment: bytes, protocol_type: str, assigned: dict[str, tuple[int, ...]] | None
) -> None:
    odd = group("billing", members=[member("b") | {"member_assignment": assignment}])
    with connection_to({"DescribeGroups": described({**odd, "protocol_type": protocol_type})}) as (_, connection):
        [found] = describe_groups(connection, ["billing"])

    assert [each.assigned for each in found.members or ()] == [assigned]


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
