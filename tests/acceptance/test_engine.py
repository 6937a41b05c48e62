"""Several workers share one Spark JVM: a fault of one worker or of the engine does not affect the others.

Nothing is lost or stored twice.
"""

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.conftest import eventually
from tests.processes import alive, stopped
from tests.servers import kafka_tools

WORKERS = ("worker-0", "worker-1")
PARTITIONS, LARGE, SMALL = 40, 7, range(20, 30)
LARGE_COUNT, SMALL_COUNT = 19_000, 100
TRANSFORM = """
def mark(frame):
    return frame.mapInArrow(marked, frame.schema)

def marked(batches):  # its module is imported by the executors' Pythons
    import pyarrow
    for batch in batches:
        place = batch.schema.get_field_index("value")
        values = pyarrow.array([{version!r}] * len(batch), pyarrow.binary())
        yield batch.set_column(place, batch.schema.field(place), values)
"""


def held(fleet: Fleet) -> dict[str, int]:
    found: dict[str, int] = fleet.engine().get("engine") or {}
    return found


def why_restarted(fleet: Fleet) -> str:
    return str((fleet.engine().get("supervisor") or {}).get("last_error"))


def committed(fleet: Fleet) -> int:
    return sum(row["current_offset"] or 0 for row in fleet.offsets().values())


def generations(fleet: Fleet) -> set[int]:
    """A member that left or was lost would have caused a new generation."""
    answer = fleet.ask("member_leader")
    assert answer is not None
    return {member["generation"] for member in answer["members"]}


SAME = """
from pyspark.sql.functions import udf
from pyspark.sql.types import BinaryType

@udf(BinaryType())
def same(value):  # holds an object of the JVM in which it was first used
    return value

def keep(frame):
    return frame.withColumn("value", same("value"))
"""


@pytest.fixture(autouse=True)
def nothing_left_behind() -> None:
    """The fleet outlives a test here."""


@pytest.fixture(scope="module")
def shared(make_shared_fleet: MakeFleet) -> Fleet:
    fleet = make_shared_fleet(
        workers=2,
        partitions=PARTITIONS,
        engine="shared",
        backoff="5.0",
        kafka="max_poll_interval_seconds = 20.0",
        workers_more="max_records_per_batch = 5000\nrevoke_timeout_seconds = 5.0\nping_timeout_seconds = 60.0",
    )
    fleet.send_to(LARGE, count=LARGE_COUNT)
    fleet.send_to(*SMALL, count=SMALL_COUNT)
    fleet.start(*WORKERS)
    return fleet


@pytest.fixture
def two(shared: Fleet) -> Fleet:
    eventually(lambda: held(shared).get("queries") == 2, SETTLE_SECONDS, "a query each")
    return shared


def with_pandas(fleet: Fleet) -> list[psutil.Process]:
    found = []
    for each in alive(psutil.Process(fleet.pid).children(recursive=True)):
        with suppress(FileNotFoundError, ProcessLookupError):  # idle Pythons of executors end
            if "/pandas/" in Path(f"/proc/{each.pid}/maps").read_text():
                found.append(each)
    return found


@pytest.mark.shows("one of 40 partitions may have 95 % of the records")
def test_a_worker_killed_in_a_backlog_leaves_nothing_in_the_engine_and_others_read_on(two: Fleet) -> None:
    eventually(lambda: two.offsets()[LARGE]["current_offset"], SETTLE_SECONDS, "a batch of the large one is committed")
    assert not with_pandas(two)
    killed = two.offsets()[LARGE]["worker"]
    [other] = {*WORKERS} - {killed}
    before = two.workers()[other]

    os.kill(two.workers()[killed]["pid"], signal.SIGKILL)
    eventually(lambda: (held(two)["workers"], held(two)["queries"]) == (1, 1), 5.0, "what it had is freed")
    two.send_to(*SMALL, count=SMALL_COUNT)
    eventually(lambda: two.workers()[other]["batches_total"] > before["batches_total"], 30, "the other one reads on")
    eventually(lambda: held(two)["workers"] == 2 and held(two)["queries"] == 2, START_SECONDS, "it is back")

    eventually(two.is_caught_up, START_SECONDS, "everything is stored")
    two.send_to(*range(PARTITIONS), count=SMALL_COUNT)
    eventually(two.is_caught_up, SETTLE_SECONDS, "so is what comes in all of them")
    two.stored_once()
    assert two.workers()[other]["pid"] == before["pid"]


@pytest.mark.shows("the offsets, lag and members shown are those of Kafka's own tool")
@pytest.mark.shows("a worker frozen for longer than its session, while another takes over, stores no message twice")
def test_a_frozen_worker_loses_its_partitions_and_has_some_again_when_it_wakes(two: Fleet) -> None:
    load = two.load(rate=500)
    eventually(lambda: two.owners() == {*WORKERS}, SETTLE_SECONDS, "each has partitions")
    pids = {name: row["pid"] for name, row in two.workers().items()}

    with stopped([pids["worker-1"]]):
        eventually(lambda: two.owners() == {"worker-0"}, START_SECONDS, "the other one has all partitions")
        before = committed(two)
        eventually(lambda: committed(two) > before, SETTLE_SECONDS, "and reads them")
        queries = queries_of_first(two)
    eventually(lambda: two.owners() == {*WORKERS}, START_SECONDS, "it has partitions again")
    eventually(lambda: queries_of_first(two) == queries + 1, SETTLE_SECONDS, "what stays is read on after one restart")

    two.finish(load)
    eventually(two.is_caught_up, SETTLE_SECONDS, "everything is stored")
    two.stored_once()
    assert {name: row["pid"] for name, row in two.workers().items()} == pids
    shows_what_kafkas_tool_shows(two)


def queries_of_first(fleet: Fleet) -> int:
    return (fleet.directory / "logs" / "worker-0.log").read_text().count("kctl_agent.worker reads ")


def shows_what_kafkas_tool_shows(fleet: Fleet) -> None:
    servers = fleet.broker.bootstrap_servers
    expected = {
        row.partition: (row.current_offset, row.log_end_offset, row.lag)
        for row in kafka_tools.describe_group(servers, fleet.group)
    }
    rows = fleet.rpc("offset_checker")["rows"]
    assert {
        r["partition"]: (r["current_offset"], r["kafka_max_offset"], r["remaining_count"]) for r in rows
    } == expected
    described = kafka_tools.describe_members(servers, fleet.group)
    theirs = {(member.consumer_id, partition) for member in described for _, partition in member.assignment}
    answer = fleet.rpc("member_leader")
    assert {(each["member_id"], tp["partition"]) for each in answer["members"] for tp in each["partitions"]} == theirs
    assert len({each["generation"] for each in answer["members"]}) == 1
    assert [each["member_id"] for each in answer["members"] if each["is_leader"]] == [answer["leader"]]


@pytest.mark.shows("a killed engine ends no worker and no membership: 0 lost, 0 twice")
def test_workers_go_on_in_the_next_engine_without_a_restart_and_stay_members(two: Fleet) -> None:
    (two.directory / "sameness.py").write_text(SAME)
    two.config.write_text(two.config.read_text().replace("[workers]", '[workers]\ntransform = "sameness:keep"'))
    two.kctl("reload")
    two.kctl("restart", *WORKERS, "--wait")
    load = two.load(rate=500)
    eventually(lambda: all(row["batches_total"] for row in two.workers().values()), SETTLE_SECONDS, "both store")
    before = {name: row["pid"] for name, row in two.workers().items()}
    before_it = eventually(lambda: len(found := generations(two)) == 1 and found, SETTLE_SECONDS, "both have joined")
    jvm = two.jvm()

    jvm.kill()
    eventually(lambda: "engine_lost" in {event["kind"] for event in two.events()}, SETTLE_SECONDS, "they report it")
    eventually(lambda: "its JVM died (signal 9)" in why_restarted(two), SETTLE_SECONDS, "the reason is shown")
    eventually(lambda: held(two).get("queries") == 2, START_SECONDS, "both have a query in the next one")

    two.finish(load)
    eventually(two.is_caught_up, SETTLE_SECONDS, "everything is stored")
    two.stored_once()
    assert {name: row["pid"] for name, row in two.workers().items()} == before
    assert generations(two) == before_it, two.events()[-40:]
    status = two.engine()["supervisor"]
    assert status["restarts_by_cause"]["exit"] == 1
    assert not alive([jvm])


@pytest.mark.long
@pytest.mark.shows("the master detects a hung JVM of the engine, and its workers need no restart")
def test_a_jvm_that_hangs_is_restarted_and_nothing_is_lost_or_stored_twice(two: Fleet) -> None:
    load = two.load(rate=500)
    jvm, before = two.jvm(), {name: row["pid"] for name, row in two.workers().items()}

    jvm.suspend()
    eventually(lambda: restarts(two).get("unresponsive"), SETTLE_SECONDS, "it is restarted")

    found = re.fullmatch(r"its agent answers, but its main thread has hung for ([0-9.]+) s", why_restarted(two))
    assert found is not None, why_restarted(two)
    assert float(found[1]) >= 7.5
    two.finish(load)
    eventually(two.is_caught_up, START_SECONDS, "everything is stored and committed")
    assert not alive([jvm]), "the JVM that hung is gone"
    assert {name: row["pid"] for name, row in two.workers().items()} == before
    two.stored_once()


def restarts(fleet: Fleet) -> dict[str, int]:
    fleet.check()
    found: dict[str, int] = (fleet.engine().get("supervisor") or {}).get("restarts_by_cause", {})
    return found


@pytest.mark.shows("a killed master leaves no process behind, and its workers leave their group")
def test_a_killed_master_leaves_no_process_and_no_member(two: Fleet) -> None:
    everybody = two.family()
    assert any(process.name() == "java" for process in everybody)
    for name in WORKERS:
        checkpoints = list((two.directory / "data" / "scratch" / name).glob("query-*"))
        assert len(checkpoints) == 1, "those of killed workers are gone"

    two.kill()

    eventually(lambda: not alive(everybody), SETTLE_SECONDS, "all of them ended")
    state = kafka_tools.describe_state(two.broker.bootstrap_servers, two.group)
    assert (state.state, state.members) == ("Empty", 0)


@pytest.mark.long
def test_a_worker_started_again_with_new_code_runs_it_in_the_executors_too(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(workers=1, partitions=1, engine="shared", workers_more='transform = "marking:mark"')
    (fleet.directory / "marking.py").write_text(TRANSFORM.format(version=b"old"))
    fleet.start("worker-0")
    fleet.send(1)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "one is stored")
    engine = fleet.engine()["pid"]

    (fleet.directory / "marking.py").write_text(TRANSFORM.format(version=b"newer"))
    fleet.kctl("restart", "worker-0", "--wait")
    fleet.send(1)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "another one is stored")

    stored = sorted((record.offset, record.value) for block in fleet.storage.blocks() for record in block.messages())
    assert stored == [(0, b"old"), (1, b"newer")]
    assert fleet.engine()["pid"] == engine


OWN_SESSION = """
import os
from pyspark.sql.functions import lit

def own(frame):
    spark, me = frame.sparkSession, os.getpid()
    if spark.conf.get("kctl.test.pid", None) is None:  # at the worker's first query
        spark.conf.set("kctl.test.pid", me)
        spark.range(me, me + 1).createOrReplaceTempView("mine")
    found = f"{me} {spark.conf.get('kctl.test.pid')} {spark.table('mine').first().id}"
    return frame.withColumn("value", lit(found).cast("binary"))
"""


@pytest.mark.long
def test_configuration_and_views_set_by_a_transform_are_its_own_workers(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(workers=2, partitions=4, engine="shared", workers_more='transform = "ownness:own"')
    (fleet.directory / "ownness.py").write_text(OWN_SESSION)
    fleet.start(*WORKERS)
    pids = {row["pid"] for row in fleet.workers().values()}

    fleet.kctl("pause", "--all")
    eventually(lambda: held(fleet)["queries"] == 0, SETTLE_SECONDS, "no query is left")
    fleet.kctl("resume", "--all")
    fleet.send(40)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "everything is stored")

    values = {record.value for block in fleet.storage.blocks() for record in block.messages()}
    assert values == {f"{pid} {pid} {pid}".encode() for pid in pids}


@pytest.mark.shows("100 killed workers do not raise threads, descriptors, files or heap of the engine")
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_hundred_killed_workers_leave_nothing_in_the_engine(make_fleet: MakeFleet) -> None:
    kafka = "static_membership = true"
    fleet = make_fleet(
        workers=1, partitions=1, backoff="0.05", kafka=kafka, engine="shared", workers_more="backoff_max_seconds = 0.1"
    )
    fleet.start("worker-0")
    load = fleet.load(rate=100)

    def kill() -> None:
        killed = fleet.workers()["worker-0"]["pid"]
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: fleet.workers().get("worker-0", {}).get("pid") not in (None, killed), START_SECONDS)
        eventually(lambda: have_stored(fleet, {"worker-0": 0}), START_SECONDS, "it stores again")

    engine, jvm = fleet.engine()["pid"], fleet.jvm()
    # These kills create what is kept for a minute, such as Kafka's consumers.
    for _ in range(30):
        kill()
    before = held_at_rest(fleet, jvm)
    for _ in range(100):
        kill()
    # The JVM closes consumers of former workers after an idle minute.
    eventually(lambda: jvm.num_fds() < before.descriptors + 30, 180, "Kafka's connections are closed")
    after = held_at_rest(fleet, jvm)
    print(f"before {before}, after a hundred more kills {after}")

    fleet.finish(load)
    eventually(fleet.is_caught_up, START_SECONDS, "everything is stored")
    fleet.stored_once()
    assert fleet.engine()["pid"] == engine
    assert (after.workers, after.queries) == (1, 1)
    assert after.threads - before.threads < 30
    assert after.heap - before.heap < 16 << 20
    assert after.files - before.files < 10


@pytest.mark.shows("5,000 batches do not raise the memory, threads or descriptors of engine and worker")
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_thousands_of_batches_leave_nothing_in_the_engine_and_its_worker(make_fleet: MakeFleet) -> None:
    batches = int(os.environ.get("KCTL_TEST_BATCHES", "5000"))
    fleet = make_fleet(workers=1, partitions=1, engine="shared", trigger="0.0")
    fleet.start("worker-0")
    load = fleet.load(rate=100)

    def run_until(total: int) -> None:
        eventually(lambda: fleet.workers()["worker-0"]["batches_total"] >= total, total, f"{total} batches are stored")

    engine, jvm, worker = fleet.engine()["pid"], fleet.jvm(), psutil.Process(fleet.workers()["worker-0"]["pid"])
    run_until(500)
    before, before_worker = held_at_rest(fleet, jvm), worker.memory_full_info().uss
    run_until(500 + batches)
    after, after_worker = held_at_rest(fleet, jvm), worker.memory_full_info().uss
    print(f"before {before}, worker {before_worker:,} B; after {batches} batches {after}, worker {after_worker:,} B")

    fleet.finish(load)
    eventually(fleet.is_caught_up, START_SECONDS, "everything is stored")
    fleet.stored_once()
    assert (fleet.engine()["pid"], fleet.workers()["worker-0"]["pid"]) == (engine, worker.pid)
    assert after.threads - before.threads < 10
    assert after.descriptors - before.descriptors < 30
    assert after.heap - before.heap < 8 << 20
    assert after.files - before.files < 10
    assert after_worker - before_worker < 8 << 20


class Held(NamedTuple):
    """Counts after a garbage collection of the engine's JVM."""

    workers: int
    queries: int
    threads: int  # without Spark's block manager, whose pools grow to 100 and shrink at rest
    descriptors: int
    heap: int
    files: int  # in its scratch folder, without the block manager's folders (at most 64)


def held_at_rest(fleet: Fleet, jvm: psutil.Process) -> Held:
    eventually(lambda: (held(fleet)["workers"], held(fleet)["queries"]) == (1, 1), SETTLE_SECONDS, "one of each")

    def jcmd(*words: str) -> str:
        return subprocess.run(["jcmd", str(jvm.pid), *words], capture_output=True, text=True, check=True).stdout

    threads = [line for line in jcmd("Thread.print").splitlines() if line.startswith('"')]
    scratch = fleet.directory / "data" / "scratch" / "engine"
    *_, total = jcmd("GC.class_histogram").splitlines()  # of live objects: it collects all garbage first
    return Held(
        workers=held(fleet)["workers"],
        queries=held(fleet)["queries"],
        threads=len([line for line in threads if not line.startswith('"block-manager-')]),
        descriptors=jvm.num_fds(),
        heap=int(total.split()[2]),
        files=len([path for path in scratch.rglob("*") if not path.parent.name.startswith("blockmgr-")]),
    )


def have_stored(fleet: Fleet, batches: dict[str, int]) -> bool:
    rows = fleet.workers()
    return all((rows.get(name, {}).get("batches_total") or 0) > before for name, before in batches.items())
