"""`kctl rpc kafka_lag` as a whole process, against Kafka's own ConsumerGroupCommand for the same group.

A real fleet with one worker that has stored and committed all there is, so that both report the same and nothing
changes. Both run in turns. Kafka's tool starts as `kctl.demo.kafka_broker` has it, tuned to be ready soon: without that
it takes a fifth longer. PYTHON* variables are left out, as in `cli_start`, which compares with `python -c pass`.

    python -m benchmarks.kafka_tool [--runs 20]

Prints one JSON line, `kafka_tool`: how many times faster ours is, by the medians; to be at least 10.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

from benchmarks._fleet import GROUP, TOPIC, Fleet, produce, running_broker, until
from benchmarks._turns import seconds_in_turns
from tests.servers.kafka_tools import consumer_group_command
from tests.servers.topics import create_topic

PARTITIONS = 8
RECORDS = 100_000
TARGET = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description="a whole kctl rpc against Kafka's own tool")
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    with running_broker() as (broker, place):
        create_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
        produce(broker, RECORDS, 100)
        with Fleet(place / "fleet", broker.bootstrap_servers) as fleet:
            until(lambda: fleet.rows_stored() == RECORDS and fleet.is_caught_up(), "everything is committed")
            kctl = Path(sys.executable).with_name("kctl")
            commands = {
                "ours": [str(kctl), "-c", str(fleet.config), "rpc", "kafka_lag"],
                "kafka": consumer_group_command(broker.bootstrap_servers, "--describe", "--group", GROUP),
            }
            times = seconds_in_turns(commands, runs)
    ours, kafka = (statistics.median(times[name]) * 1000 for name in ("ours", "kafka"))
    line = {"benchmark": "kafka_tool", "ours_ms": round(ours, 1), "kafka_ms": round(kafka, 1), "runs": runs}
    ratio = kafka / ours
    print(json.dumps(line | {"ratio": round(ratio, 1), "target": TARGET, "met": ratio >= TARGET}), flush=True)


if __name__ == "__main__":
    main()
