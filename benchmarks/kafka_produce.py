"""`kctl kafka produce --file` as a whole process, against kafka-python's own producer benchmark: 1,000,000 messages.

Both produce 100 bytes a message, uncompressed and idempotent, into a topic of one partition on one broker; in turns.
kafka-python's reports the time from its first `send` to the last acknowledgement, without start-up; ours is the whole
process, with reading the file, counting what was acknowledged, and a bound on what waits in memory.

    python -m benchmarks.kafka_produce [--messages 1000000] [--rounds 2]

Prints one JSON line, `kafka_produce`: our messages per second as a part of theirs, by the best of each; to be at least
0.5.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks._fleet import progress
from benchmarks._turns import plain_environment
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.topics import create_topic

VALUE_BYTES = 100
TARGET = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description="kctl kafka produce --file against kafka-python's own benchmark")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    count = options.messages
    ours: list[float] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory(prefix="b", dir="/tmp") as place, KafkaBroker(Path(place, "broker")) as broker:
        file = Path(place, "lines")
        with file.open("w") as lines:
            lines.writelines(f"{number:0{VALUE_BYTES}d}\n" for number in range(count))
        for turn in range(options.rounds):
            for name, rates, produce in (("theirs", theirs, _theirs), ("ours", ours, _ours)):
                topic = f"{name}-{turn}"
                create_topic(broker.bootstrap_servers, topic, 1)
                rates.append(count / produce(broker.bootstrap_servers, topic, count, file))
                progress(f"{name}: {rates[-1]:,.0f} messages a second")
    ratio = max(ours) / max(theirs)
    line = {"benchmark": "kafka_produce", "messages": count, "ours_per_second": round(max(ours))}
    line |= {"theirs_per_second": round(max(theirs)), "ratio": round(ratio, 2)}
    print(json.dumps(line | {"target": TARGET, "met": ratio >= TARGET}), flush=True)


def _ours(servers: str, topic: str, count: int, file: Path) -> float:
    kctl = str(Path(sys.executable).with_name("kctl"))
    command = [kctl, "kafka", "produce", "-b", servers, "-t", topic, "--file", str(file), "-o", "json"]
    began = time.perf_counter()
    done = subprocess.run(command, env=plain_environment(), capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - began
    assert json.loads(done.stdout)["messages"] == count, done.stdout
    return seconds


def _theirs(servers: str, topic: str, count: int, _: Path) -> float:
    command = [sys.executable, "-P", "-W", "ignore", "-m", "kafka.benchmarks.producer_performance"]
    command += ["--bootstrap-servers", servers, "--topic", topic, "--num-records", str(count)]
    command += ["--record-size", str(VALUE_BYTES), "--stats-interval", "60"]
    done = subprocess.run(command, env=plain_environment(), capture_output=True, text=True, check=True)
    assert f"{count} suceeded, 0 failed" in done.stdout, done.stdout + done.stderr  # spelt as they do
    found = re.search(r"Execution time: ([\d.]+) secs", done.stdout)
    assert found, done.stdout
    return float(found[1])


if __name__ == "__main__":
    main()
