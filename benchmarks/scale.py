"""`kctl scale workers=8`: how soon all eight have stored a batch, where one engine is there already.

One real fleet of `FROM` workers that store what is produced all the time; two partitions for each of the eight.

    python -m benchmarks.scale [--to 8] [--rounds 3]

Prints one JSON line, `scale_to_N`: seconds from the command until each worker has stored a batch (median, and the
longest of the rounds), and until each is a member that runs; at most 15. Between rounds the fleet is scaled back.
"""

import argparse
import json
import statistics
import subprocess
import time

from benchmarks._fleet import START_SECONDS, TOPIC, Fleet, progress, running_broker, until
from kctl.children import python_module
from kctl.demo.run import Producer
from tests.servers.topics import create_topic

FROM = 1
PARTITIONS_EACH = 2
RATE = 2000.0
TARGET_SECONDS = 15.0


def main() -> None:
    parser = argparse.ArgumentParser(description="how soon the workers of kctl scale store")
    parser.add_argument("--to", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with running_broker() as (broker, place):
        partitions = PARTITIONS_EACH * options.to
        create_topic(broker.bootstrap_servers, TOPIC, partitions)
        producer = Producer(broker.bootstrap_servers, TOPIC, partitions, RATE)
        producer.start()
        with Fleet(place / "fleet", broker.bootstrap_servers) as fleet:
            until(lambda: _storing(fleet) >= FROM, "the first workers store", START_SECONDS)
            rounds = [_round(fleet, options.to) for _ in range(options.rounds)]
        producer.stop(0)
    running, storing = ([each[n] for each in rounds] for n in (0, 1))
    line = {
        "benchmark": f"scale_to_{options.to}",
        "running_s": round(statistics.median(running), 1),
        "storing_s": round(statistics.median(storing), 1),
        "slowest_s": round(max(storing), 1),
        "target_s": TARGET_SECONDS,
        "met": statistics.median(storing) <= TARGET_SECONDS,
    }
    print(json.dumps(line), flush=True)


def _round(fleet: Fleet, to: int) -> tuple[float, float]:
    """Seconds until all of them run, and until all have stored."""
    began = time.monotonic()
    _scale(fleet, to)
    until(lambda: _running(fleet) == to, "all run", START_SECONDS)
    running = time.monotonic() - began
    until(lambda: _storing(fleet) == to, "all store", START_SECONDS)
    storing = time.monotonic() - began
    progress(f"{to} workers run after {running:.1f} s and store after {storing:.1f} s")
    _scale(fleet, FROM)
    until(lambda: len(_workers(fleet)) == FROM and _storing(fleet) == FROM, "scaled back", START_SECONDS)
    return running, storing


def _scale(fleet: Fleet, to: int) -> None:
    command = [*python_module("kctl"), "-c", str(fleet.config), "scale", f"workers={to}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _workers(fleet: Fleet) -> list[dict[str, object]]:
    fleet.check()
    answer = fleet.ask("workers")
    return [row for row in answer["rows"] if row["kind"] == "worker"] if answer else []


def _running(fleet: Fleet) -> int:
    return sum(row["state"] == "running" for row in _workers(fleet))


def _storing(fleet: Fleet) -> int:
    return sum(bool(row["batches_total"]) for row in _workers(fleet))


if __name__ == "__main__":
    main()
