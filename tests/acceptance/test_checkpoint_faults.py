"""`kctl checkpoint show` predicts what Spark does with a damaged checkpoint.

With KCTL_TEST_SPARK_PYTHON, the Python of an environment with another PySpark, and KCTL_TEST_SPARK_CONF, such as
`spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7`, it is that version's.
"""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kctl.checkpoints.checkpoint import place, read, starts
from kctl.checkpoints.logs import findings, read_rows
from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from tests.acceptance.spark_jobs import Outcome, SparkJobs
from tests.checkpoint_faults import FAULTS, NEXT_OFFSETS, RECORDED, STATE_FAULTS, Fault, copied
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
VERSIONS = ("4.2.0", "3.5.7")
LEFT = 2


@pytest.fixture(scope="module", params=VERSIONS)
def spark(
    request: pytest.FixtureRequest, broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkJobs]:
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    with SparkJobs(broker.bootstrap_servers, log, request.param) as running:
        yield running


class Case:
    def __init__(self, broker: KafkaBroker, spark: SparkJobs, folder: Path, name: str = "plain") -> None:
        self.servers = broker.bootstrap_servers
        self.spark = spark
        self.topic = f"c{uuid.uuid4().hex[:8]}"
        self.is_stateful = name == "stateful"
        self.folder = copied(RECORDED / spark.version / name, folder / "checkpoint", orders=self.topic)
        self.create(2, NEXT_OFFSETS + LEFT)

    def create(self, partitions: int, count: int) -> None:
        topics.create_topic(self.servers, self.topic, partitions)
        topics.produce(self.servers, self.topic, dict.fromkeys(range(partitions), count))

    def recreate(self, partitions: int, count: int) -> None:
        topics.delete_topic(self.servers, self.topic)
        self.create(partitions, count)

    def verdict(self) -> bool | None:
        checkpoint = read(place(str(self.folder)))
        with ClusterConnection(plain(self.servers), 30) as connection:
            rows = read_rows(connection, checkpoint)
        return starts((*checkpoint.findings, *findings(rows)))

    def outcome(self) -> Outcome:
        return self.spark.run(self.folder, [self.topic], stateful=self.is_stateful)


@pytest.fixture
def case(broker: KafkaBroker, spark: SparkJobs, tmp_path: Path) -> Case:
    return Case(broker, spark, tmp_path)


def check(case: Case, expected: bool | None) -> Outcome:
    verdict = case.verdict()  # first, because Spark writes
    outcome = case.outcome()
    assert verdict is expected
    if verdict is not None:
        assert (outcome.error is None) is verdict, outcome
    return outcome


@pytest.mark.parametrize("name", FAULTS)
def test_spark_starts_from_a_damaged_checkpoint_as_the_verdict_has_it(name: str, case: Case) -> None:
    fault: Fault = FAULTS[name]
    fault.make(case.folder)

    check(case, fault.starts)


@pytest.mark.parametrize("name", STATE_FAULTS)
def test_spark_and_the_verdict_on_bad_state(name: str, broker: KafkaBroker, spark: SparkJobs, tmp_path: Path) -> None:
    case = Case(broker, spark, tmp_path, "stateful")
    STATE_FAULTS[name].make(case.folder)

    check(case, STATE_FAULTS[name].starts)


def test_metadata_that_is_missing_ends_spark_42_alone(case: Case) -> None:
    FAULTS["metadata is missing"].make(case.folder)

    outcome = check(case, None)

    assert (outcome.error is not None) is outcome.version.startswith("4.2")


def new_partition_whose_first_messages_are_gone(case: Case) -> None:
    topics.add_partitions(case.servers, case.topic, 3)
    topics.produce(case.servers, case.topic, {2: 5})
    topics.delete_records(case.servers, case.topic, {2: 2})


LOGS: dict[str, tuple[Callable[[Case], object], bool]] = {
    "recreated and shorter": (lambda case: case.recreate(2, 5), False),
    "recreated and empty": (lambda case: case.recreate(2, 0), False),
    "recreated with fewer partitions": (lambda case: case.recreate(1, 40), False),
    "recreated and longer": (lambda case: case.recreate(2, NEXT_OFFSETS + 10), True),
    "gone": (lambda case: topics.delete_topic(case.servers, case.topic), False),
    "deleted by retention": (
        lambda case: topics.delete_records(case.servers, case.topic, {0: NEXT_OFFSETS + 1, 1: NEXT_OFFSETS}),
        False,
    ),
    "with a partition more": (lambda case: topics.add_partitions(case.servers, case.topic, 3), True),
    "with a partition more whose first messages are gone": (new_partition_whose_first_messages_are_gone, False),
}


@pytest.mark.parametrize("name", LOGS)
def test_spark_goes_on_with_a_changed_topic_as_the_verdict_has_it(name: str, case: Case) -> None:
    change, expected = LOGS[name]
    change(case)

    outcome = check(case, expected)

    if name == "recreated and longer":
        assert outcome.rows == 20, "the first messages are skipped without an error"


def test_offsets_that_are_exported_start_another_query_where_this_one_has_ended(case: Case, tmp_path: Path) -> None:
    from kctl.checkpoints.entries import starting_offsets

    offsets = starting_offsets(read(place(str(case.folder))).offsets)

    outcome = case.spark.run(tmp_path / "another", [case.topic], options={"startingOffsets": offsets})

    assert (outcome.error, outcome.rows) == (None, 2 * LEFT)
