"""The lines of docs/storage.md start a Spark cluster on one machine, and its executors fill a table."""

import re
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable
from kafka import KafkaProducer

from kctl.demo.kafka_broker import free_ports
from tests.acceptance.documented import Terminals
from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS
from tests.acceptance.spark_cluster import is_executor
from tests.command_lines import run_process
from tests.conftest import eventually
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.topics import create_topic

pytestmark = pytest.mark.long

_, _, SECTION = (
    (Path(__file__).parents[2] / "docs" / "storage.md")
    .read_text(encoding="utf-8")
    .partition("\n### A table filled by a Spark cluster\n")
)
KAFKA = """
[kafka]
bootstrap_servers = "{}"
group = "recipe"
topics = ["recipe"]

[workers]
trigger_seconds = 1.0

[http]
port = 0
"""


@pytest.mark.shows("six lines start a Spark cluster on one machine, fill a table with it, and end it")
def test_the_lines_of_the_page_start_a_cluster_fill_a_table_and_end_it(broker: KafkaBroker, short_dir: Path) -> None:
    config = re.findall(r"```toml\n(.*?)```", SECTION, re.DOTALL)[0]
    [lines] = re.findall(r"```\n(export SPARK_HOME.*?)```", SECTION, re.DOTALL)
    [port] = map(str, free_ports(1))
    for before, after in {
        "/mnt/lake": str(short_dir),
        "spark-1": "127.0.0.1",
        "kctl-1": "127.0.0.1",
        'auth_secret_file = "spark.secret"\n': "",
        "[spark.conf]\n": '[spark.conf]\n"spark.authenticate" = "false"\n',
        "7077": port,  # of another cluster
    }.items():
        assert before in config
        config = config.replace(before, after)
    (short_dir / "kctl.toml").write_text(config + KAFKA.format(broker.bootstrap_servers))
    create_topic(broker.bootstrap_servers, "recipe", 4)
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(1000):
            producer.send("recipe", b"x", partition=number % 4)

    with closing(Terminals(short_dir, {"7077": port})) as terminals:
        shell = terminals.begin(lines)
        table = str(short_dir / "orders")
        eventually(
            lambda: DeltaTable.is_deltatable(table) and DeltaTable(table).count() == 1000,
            START_SECONDS,
            "all is stored",
        )
        processes = psutil.Process(shell.pid).children(recursive=True)
        assert any(map(is_executor, processes))
        assert run_process("-c", str(short_dir / "kctl.toml"), "stop").returncode == 0

        assert shell.wait(SETTLE_SECONDS) == 0
        assert psutil.wait_procs(processes, SETTLE_SECONDS)[1] == []
