import json
import math
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.master.history import FLEET, FleetHistory, Ring, StepRates, Subject
from kctl.master.reduction import COMMANDS, OFFSET_CHECKER, gaps, reduced
from kctl.master.snapshot import FleetSnapshot, Reduced
from kctl.reduce.base import Answer, Freshness
from kctl.rows.columns import Reals
from kctl.rows.workers import WorkerRow, Workers
from kctl.status import Assessment, Assessor, Owner, Status, StatusRules
from kctl.status.owners import Owners
from kctl_agent.replies.workers import SinkerStats
from kctl_agent.rpc.commands import COMMANDS as OF_AGENTS
from tests.fleet_snapshot import TAKEN_AT, UNIX, history_of, snapshot
from tests.partitions import Row, assessments_of, columns_of
from tests.replies import NOBODY, outcome_of, parsed, reply_of
from tests.served_groups import cluster, group


def row(topic: str, number: int, committed: int | None, end: int | None, worker: str = "worker-0") -> Row:
    return Row(topic, number, 0, committed, None, end, None, worker, 1, 0.5)


def taken(rows: list[Row], second: float, workers: tuple[WorkerRow, ...] = ()) -> FleetSnapshot:
    found = tuple(Assessment(Status.OK, "", float(place)) for place in range(len(rows)))
    return replace(
        snapshot(),
        taken_at=TAKEN_AT + second,
        taken_at_unix=UNIX + second,
        offset_checker=Reduced(columns_of(*(rows))),
        assessments=assessments_of(*found),
        workers=Reduced(Workers(workers)),
        resident_bytes={"worker-0": 300, "sinker-0": 100},
    )


def counted(stored: int, batches: int, kind: str = "worker", handled: int | None = None) -> WorkerRow:
    stats = None if handled is None else SinkerStats(handled=handled)
    return WorkerRow(f"{kind}-0", kind, rows_total=stored, batches_total=batches, last_batch_seconds=1.5, sinker=stats)


def most(history: FleetHistory, subject: Subject) -> dict[str, list[float]]:
    window = history.read(subject, UNIX - 100, UNIX + 1000)
    assert window is not None
    return {name: values[~np.isnan(values)].tolist() for name, values in window.most.items()}


@pytest.fixture
def history() -> FleetHistory:
    history = FleetHistory()
    before = [row("a", 0, 100, 110), row("a", 1, 200, 230), row("b", 0, None, 50, "worker-1")]
    after = [row("a", 0, 120, 120), row("a", 1, 200, 250), row("b", 0, 10, 60, "worker-1")]
    history.add(taken(before, 0, (counted(10, 1), counted(5, 1, "sinker", 5))))
    history.add(taken(after, 5, (counted(30, 2), counted(9, 2, "sinker", 15))))
    return history


@pytest.mark.shows("fleet, topics, partitions and processes have a history; unknown values are gaps")
def test_topics_processes_and_the_fleet_have_the_sums_of_their_partitions(history: FleetHistory) -> None:
    of_one, of_topic, of_fleet = (most(history, each) for each in (("partition", ("a", 0)), ("topic", "a"), FLEET))

    assert of_one == {"lag": [10, 0], "lag_seconds": [0, 0], "produced_per_second": [2], "stored_per_second": [4]}
    assert (of_topic["lag"], of_topic["produced_per_second"], of_topic["lag_seconds"]) == ([40, 50], [6], [1, 1])
    assert (of_fleet["lag"], of_fleet["produced_per_second"]) == ([90.0, 100.0], [8.0])
    assert of_fleet["stored_per_second"] == [4.0], "of the partitions that had committed something before"

    of_worker, of_sinker = (most(history, ("worker", name)) for name in ("worker-0", "sinker-0"))
    assert (of_worker["stored_per_second"], of_worker["partitions"]) == ([4.0], [2.0, 2.0])
    assert (of_worker["lag"], of_worker["memory_bytes"]) == ([40.0, 50.0], [300.0, 300.0])
    assert of_worker["batch_seconds"] == of_fleet["batch_seconds"] == [1.5], "of a batch that has ended meanwhile"
    assert (of_sinker["handled_per_second"], of_sinker["partitions"]) == ([2.0], [])
    assert (of_fleet["handled_per_second"], of_fleet["memory_bytes"]) == ([2.0], [400.0, 400.0])


def test_what_was_never_known_is_not_there_and_a_fleet_of_nothing_has_gaps(history: FleetHistory) -> None:
    assert [history.read(each, 0, UNIX) for each in (("topic", "c"), ("partition", ("a", 9)))] == [None, None]
    empty = FleetHistory()
    empty.add(taken([], 0))

    assert {name: values for name, values in most(empty, FLEET).items() if values} == {"memory_bytes": [400.0]}


def test_steps_are_the_finest_that_go_back_to_the_time_asked_for_or_to_the_beginning(history: FleetHistory) -> None:
    def steps(now: float) -> list[object]:
        windows = [history.read(FLEET, now - ago, now) for ago in (600, 3600, 80_000)]
        assert {each and each.began_at for each in windows} == {UNIX}
        return [each and each.step_seconds for each in windows]

    assert steps(UNIX + 5) == [5.0, 5.0, 5.0]

    hours = 3 * 3600
    history.add(taken([row("orders", 0, 5, 10)], hours))
    assert steps(UNIX + hours) == [5.0, 30.0, 300.0]


def test_the_sparkline_is_the_most_of_each_15_seconds_and_begins_where_something_is_known() -> None:
    history = FleetHistory()
    for second, lag in ((0, 5), (4, 9), (20, 7), (50, 8)):
        history.add(taken([row("a", 0, 0, lag), row("a", 1, None, None)], 10 + second))

    assert history.sparklines([("a", 0), ("a", 1), ("b", 0), ("a", 0)]) == [[9, 7, None, 8], [], [], [9, 7, None, 8]]
    assert (history.sparklines([]), FleetHistory().sparklines([("a", 0)])) == ([], [[]])


def growing(partitions: int) -> Iterator[FleetSnapshot]:
    rows = [row("orders", number, 5, 10) for number in range(partitions)]
    yield from (taken(rows, second, (counted(1, 1),)) for second in (0, 5))


@pytest.mark.shows("the history of 1,000 partitions takes less than 30 MB, that of 10,000 less than 15 MB")
@pytest.mark.parametrize(("partitions", "most_bytes", "metrics"), [(1000, 30e6, 4), (10_000, 15e6, 1)])
def test_memory_is_bounded(partitions: int, most_bytes: float, metrics: int) -> None:
    snapshots = [*growing(partitions)]
    tracemalloc.start()
    try:
        history = history_of(*snapshots)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert used < most_bytes
    assert len(most(history, ("partition", ("orders", 7)))) == metrics
    assert len(most(history, ("topic", "orders"))) == 4


@pytest.mark.shows("the 20 groups with the most lag have a history")
def test_of_other_groups_those_with_the_most_lag_are_kept_and_stay_while_others_pass_them() -> None:
    history = FleetHistory()
    first = cluster("main", *(group(f"g-{number}", 100 + number) for number in range(25)))
    passing = cluster("main", *(group(f"g-{number}", 200 - number) for number in range(25)))
    for second, clusters in ((0, first), (5, passing), (10, passing)):
        history.add(replace(taken([], second), clusters=(clusters,)))

    assert most(history, ("group", ("main", "g-24"))) == {"lag": [124.0, 176.0, 176.0], "lag_seconds": [2.5, 2.5, 2.5]}
    assert history.read(("group", ("main", "g-0")), UNIX, UNIX + 10) is None

    others = cluster("main", *(group(f"h-{number}", 500) for number in range(45)))
    history.add(replace(taken([], 15), clusters=(others,)))
    assert history.read(("group", ("main", "g-24")), UNIX, UNIX + 10) is None
    assert most(history, ("group", ("main", "h-0")))["lag"] == [500.0]


def test_partitions_at_the_limit_keep_their_history_when_a_process_comes_or_goes() -> None:
    history = FleetHistory()
    rows = [row("a", number, 100, 110) for number in range(1225)]
    for second, processes in enumerate((12, 13, 12)):
        each = tuple(replace(counted(1, 1), name=f"worker-{number}") for number in range(processes))
        history.add(taken(rows, 5 * second, each))

    assert most(history, ("partition", ("a", 7)))["lag"] == [10, 10, 10]


NAN = math.nan
VALUES = st.one_of(st.just(NAN), st.integers(0, 1000).map(float))
MOMENTS = st.lists(st.tuples(st.integers(-40, 90), VALUES), max_size=40)


@given(MOMENTS)
def test_each_step_keeps_its_least_and_its_most_wherever_the_clock_goes(moments: list[tuple[int, float]]) -> None:
    ring, model, at, last = Ring(5.0, 6), dict[int, list[float]](), 1000, 200
    ring.choose(np.array([-1]), 1)

    for moved, value in moments:
        at += moved
        last = at // 5
        model = {step: values for step, values in model.items() if last - 6 < step <= last}
        model.setdefault(last, [])
        model[last] += [] if value != value else [value]
        ring.add(at, np.array([[value]]))

    first, least, most = ring.window(0, 0.0, 1e9)
    known = {first + n: (low, high) for n, (low, high) in enumerate(zip(least[0], most[0], strict=True)) if low == low}
    assert known == {step: (min(values), max(values)) for step, values in model.items() if values}


def test_rates_are_between_steps_and_unknown_for_what_has_fallen_or_is_new() -> None:
    rates = StepRates(5.0)
    counters = [([10.0, 100.0], 0.0), ([20.0, 100.0], 2.0), ([60.0, 90.0], 5.0), ([60.0, 100.0], 10.0)]

    found = [rates.add(["a", "b"], np.array([values]), now, 1000.0 + now)[0].tolist() for values, now in counters]

    assert np.isnan(found[0] + found[1]).all(), "there is nothing to compare with, and the same step"
    assert (found[2][0], found[3]) == (10.0, [0.0, 2.0])
    assert math.isnan(found[2][1])

    rates = StepRates(5.0)
    rates.add(["a"], np.array([[NAN]]), 0.0, 0.0)
    assert np.isnan(rates.add(["new", "a"], np.array([[5.0, 5.0]]), 5.0, 5.0)).all()
    assert rates.add(["a", "new"], np.array([[15.0, 5.0]]), 10.0, 10.0).tolist() == [[2.0, 0.0]]


FRESH = Freshness(0.5, 0.5, 2.0, None)
ODD: list[Any] = [None, "x", 7, -1.5, True, [], {}, [1], ["x"], [{}], {"a": 1}, 10**400, -(2**63)]


def odd_ones(value: Any) -> Iterator[Any]:
    """`value` with one part replaced, in every way."""
    yield from ODD
    if isinstance(value, dict):
        for name, part in value.items():
            yield from ({**value, name: odd} for odd in odd_ones(part))
    elif isinstance(value, list):
        for i, part in enumerate(value):
            yield from ([*value[:i], odd, *value[i + 1 :]] for odd in odd_ones(part))


@pytest.mark.parametrize("rpc", sorted(COMMANDS.keys() & OF_AGENTS.keys()))
def test_whatever_one_agent_replies_the_others_are_reduced(rpc: str) -> None:
    command, good = COMMANDS[rpc], Answer("a", reply_of(rpc, partitions=2), 0.0)
    [expected] = parsed(rpc, [good])
    for odd in odd_ones(good.result):
        if not isinstance(odd, dict):
            continue
        for name in ("0", "b"):
            sent = outcome_of(good, Answer(name, odd, 0.0))
            outcome, of_host = command.decoded(sent), command.between_hosts().decoded(command.shortened(sent))
            assert of_host.failed == outcome.failed
            assert command.encoded(command.reduce(of_host.answers, NOBODY)) == command.encoded(
                command.reduce(outcome.answers, NOBODY)
            )
            assert expected in outcome.answers
            assert {failure.code for failure in outcome.failed} <= {"bad_result"}
            json.dumps(command.encoded(reduced(command, outcome, NOBODY, FRESH).result))


def test_what_one_agent_reports_of_a_partition_can_always_be_judged_and_kept() -> None:
    good = Answer("a", reply_of("offset_checker", 2), 0.0)
    owner = Owner("a", "running", 1.0)
    for odd in odd_ones(good.result["rows"][0]):
        outcome = OFFSET_CHECKER.decoded(outcome_of(good, Answer("b", {"rows": [odd]}, 0.0)))
        columns, assessor = OFFSET_CHECKER.reduce(outcome.answers, NOBODY), Assessor(StatusRules())
        for now in (1.0, 2.0):
            assessor.assess(replace(columns, now=now), Owners.of([owner] * len(columns.names)), now)


SILENT = Freshness(13.2, 13.2, 2.0, "b:9092 refused the connection")
NEVER = Freshness(None, None, 2.0, None)


def aged(partition: int, age: float, lag: int | None = 0) -> Row:
    end = None if lag is None else lag
    return Row("orders", partition, 0, 0, 0, end, None, "worker-0", 1, age)


def partitions(*rows: Row) -> tuple[Reals, list[str]]:
    columns = columns_of(*rows)
    return columns.age_seconds, [
        f"{row.topic}-{row.partition}" for row in columns.rows() if row.remaining_count is None
    ]


@pytest.mark.parametrize("rpc", ["kafka_lag", "offset_checker"])
def test_rows_older_than_two_intervals_are_stale_with_age_and_reason(rpc: str) -> None:
    assert gaps(rpc, FRESH, *partitions(aged(0, 2.0), aged(1, 0.1))) == ()

    [gap] = gaps(rpc, SILENT, *partitions(aged(0, 13.2), aged(1, 13.2)))
    assert (gap.sender, gap.code) == ("brokers", "stale")
    assert gap.message == "the brokers' offsets are up to 13 s old: b:9092 refused the connection"
    [gap] = gaps(rpc, FRESH, *partitions(aged(0, 2.1), aged(1, 0.1)))
    assert gap.message == "the brokers' offsets of 1 of 2 partitions are up to 2 s old"
    assert gaps(rpc, SILENT, *partitions(aged(0, 0.3))) == (), "workers have just fetched it"


def test_an_unknown_lag_is_named_and_brokers_that_never_answered_are_a_gap() -> None:
    [gap] = gaps("kafka_lag", FRESH, *partitions(*(aged(n, 0.1, None if n else 5) for n in range(10))))

    assert gap.code == "unknown"
    assert gap.message.startswith("the lag of orders-1, orders-2, orders-3, orders-4, orders-5 and 4 more is not known")

    assert gaps("kafka_lag", FRESH) == ()
    assert [gap.code for gap in gaps("kafka_lag", NEVER)] == ["stale"]
    [gap] = gaps("kafka_lag", replace(FRESH, missing_topics=("orders",)))
    assert (gap.code, gap.message) == ("unknown", "the lag of orders is not known: the topic does not exist")


def test_metadata_are_as_old_as_the_last_answer_of_a_broker() -> None:
    assert gaps("metadata_topics", FRESH) == ()
    assert "13 s old" in gaps("metadata_topics", SILENT)[0].message
    assert gaps("metadata_topics", NEVER)[0].message == "no broker has answered the master yet"
