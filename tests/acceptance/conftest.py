"""Real parts for the acceptance tests: one Kafka broker for all processes, and fleets of real Spark workers."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.acceptance.fleets import Fleet, MakeFleet
from tests.acceptance.spark_cluster import MakeCluster, SparkCluster
from tests.object_store_server import ObjectStoreServer
from tests.servers.kafka_broker import KafkaBroker, running_broker
from tests.servers.kafka_cluster import KafkaCluster
from tests.servers.redis_server import RedisServer, require_redis

ONE_FLEET = {"test_engine.py", "test_spark_batches.py", "test_one_worker.py", "test_strangers_on_the_host.py"}
LONGEST = (  # the longest files begin first, so that the last one does not run alone
    *("test_spark_batches.py", "test_engine.py", "test_demo.py", "test_typed_messages.py", "test_one_worker.py"),
    *("test_spark_cluster.py", "test_unreadable_records.py", "test_watched_jobs.py", "test_alerts.py"),
    *("test_spark_hosts.py", "test_strangers_on_the_host.py", "test_attach.py"),
)


class EachByItself(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Gives the next test to any free process, but keeps files with a shared fleet together. pytest-xdist 3.8 ignores
    marks for `--dist loadgroup` with pytest 9."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return path if Path(path).name in ONE_FLEET else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> EachByItself:
    return EachByItself(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: [*LONGEST, item.path.name].index(item.path.name))


SERVERS = pytest.StashKey[str]()


class SharedBroker(KafkaBroker):
    """The broker of the process that distributes the tests. Only that process stops it."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers

    @property
    def bootstrap_servers(self) -> str:
        return self._servers


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    config: pytest.Config = node.config
    if SERVERS not in config.stash:
        stack = ExitStack()
        config.add_cleanup(stack.close)
        config.stash[SERVERS] = stack.enter_context(running_broker()).bootstrap_servers
    node.workerinput["bootstrap_servers"] = config.stash[SERVERS]


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    servers = getattr(request.config, "workerinput", {}).get("bootstrap_servers")
    with ExitStack() as stack:
        yield SharedBroker(servers) if servers else stack.enter_context(running_broker())


@pytest.fixture
def redis_server(short_dir: Path) -> Iterator[RedisServer]:
    require_redis()
    with RedisServer(short_dir / "redis", "--auto-aof-rewrite-percentage", "0") as server:
        yield server


@pytest.fixture
def object_store(short_dir: Path) -> Iterator[ObjectStoreServer]:
    with ObjectStoreServer(short_dir / "s3") as running:
        yield running


@pytest.fixture
def make_cluster(short_dir: Path) -> Iterator[MakeCluster]:
    with ExitStack() as stack:

        def make(**more: Any) -> SparkCluster:
            cluster = SparkCluster(short_dir / "spark", **more)
            stack.callback(lambda: print(cluster.log_tail()))
            cluster.start(stack)
            return cluster

        yield make


@pytest.fixture
def make_fleet(short_dir: Path, broker: KafkaBroker) -> Iterator[MakeFleet]:
    with making_fleets(short_dir, broker) as make:
        yield make


@pytest.fixture(scope="module")
def shared_dir() -> Iterator[Path]:
    """All tests of a module share this folder."""
    folder = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def make_shared_fleet(shared_dir: Path, broker: KafkaBroker) -> Iterator[MakeFleet]:
    with making_fleets(shared_dir, broker) as make:
        yield make


@contextmanager
def making_fleets(folder: Path, broker: KafkaBroker) -> Iterator[MakeFleet]:
    made: list[Fleet] = []

    def make(
        *, workers: int = 1, partitions: int = 4, on: KafkaBroker | KafkaCluster | None = None, **more: Any
    ) -> Fleet:
        directory = folder / f"fleet {len(made)}"  # a URI or a shell would change it
        directory.mkdir()
        made.append(Fleet(directory, on or broker, partitions=partitions, workers=workers, **more))
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()
        print(fleet.log_tail())
