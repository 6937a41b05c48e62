"""`kctl kafka lag` as a whole process, against Kafka's own ConsumerGroupCommand for the same group: 2,000 partitions.

Both run in turns against one broker. Kafka's tool starts as `kctl.demo.kafka_broker` starts it, tuned to be ready soon.
PYTHON* variables are left out, as in `cli_start`, and so is what a run has to compile.

    python -m benchmarks.kafka_lag [--runs 10]

Prints one JSON line, `kafka_lag`: how many times faster ours is, by the medians; to be at least 8.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from kafka import KafkaAdminClient

from benchmarks._fleet import progress
from benchmarks._turns import seconds_in_turns
from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import topics_of
from kctl.kafka.offsets import commit, log_offsets
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.kafka_tools import consumer_group_command

PARTITIONS = 2000
GROUP = "readers"
TARGET = 8.0


def main() -> None:
    parser = argparse.ArgumentParser(description="kctl kafka lag against Kafka's own tool")
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory(prefix="b", dir="/tmp") as place:
        broker = KafkaBroker(Path(place))
        broker.start()
        try:
            servers = broker.bootstrap_servers
            _prepare(servers)
            kctl = str(Path(sys.executable).with_name("kctl"))
            commands = {
                "ours": [kctl, "kafka", "lag", "-g", GROUP, "-b", servers],
                "kafka": consumer_group_command(servers, "--describe", "--group", GROUP),
                "pass": [sys.executable, "-c", "pass"],
            }
            times = seconds_in_turns(commands, runs)
        finally:
            broker.kill()
    median = {name: statistics.median(taken) * 1000 for name, taken in times.items()}
    ratio = median["kafka"] / median["ours"]
    line = {"benchmark": "kafka_lag", "partitions": PARTITIONS, "runs": runs}
    line |= {f"{name}_ms": round(value, 1) for name, value in median.items()}
    print(json.dumps(line | {"ratio": round(ratio, 1), "target": TARGET, "met": ratio >= TARGET}), flush=True)


def _prepare(servers: str) -> None:
    progress(f"a topic of {PARTITIONS} partitions")
    keys = [("wide", number) for number in range(PARTITIONS)]
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics({"wide": {"num_partitions": PARTITIONS, "replication_factor": 1}})
    with ClusterConnection(plain(servers), 120) as connection:
        known = topics_of(connection.open(["wide"]))
        while {each.error for each in log_offsets(connection, known, keys).values()} != {None}:
            connection.pause()
            known = topics_of(connection.metadata(["wide"]))
        assert set(commit(connection, GROUP, dict.fromkeys(keys, 0)).values()) == {None}


if __name__ == "__main__":
    main()
