"""What it costs `kctl exporter` to watch the checkpoints of Spark jobs: processor time and requests a minute.

A real broker with one topic of two partitions; `--count` checkpoints as Spark 4.2 writes them, each of which gets a
batch every minute; read every 60 s, as by default. In turns: no checkpoint, all in folders, all on S3 (SeaweedFS,
behind a proxy that counts requests).

    python -m benchmarks.checkpoints [--count 500] [--seconds 120]

Prints JSON lines: share of a core, resident memory, requests a minute, and the time until all had a lag. No target.
"""

import argparse
import json
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks._fleet import progress
from benchmarks.lake_commits_s3 import CountingProxy
from kctl_agent.storage.lake.folder.base import Folder
from kctl_agent.storage.lake.folder.local import LocalFolder
from tests.checkpoint_faults import RECORDED
from tests.conftest import eventually
from tests.exporters import Exporter, running_exporter
from tests.object_store_server import BUCKET, ObjectStoreServer
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker

SOURCE = RECORDED / "4.2.0" / "plain"
FILES = [each for each in SOURCE.rglob("*") if each.is_file()]


def create(folder: Folder) -> None:
    for each in FILES:
        folder.write(str(each.relative_to(SOURCE)), each.read_bytes())


def add_batch(folder: Folder, number: int) -> None:
    planned = re.sub(rb'"([01])":\d+', rb'"\1":%d' % (18 + number % 10), (SOURCE / "offsets" / "2").read_bytes())
    folder.write(f"offsets/{number}", planned)
    folder.write(f"commits/{number}", (SOURCE / "commits" / "2").read_bytes())


@contextmanager
def exporter(directory: Path, servers: str, uris: list[str], env: Mapping[str, str]) -> Iterator[Exporter]:
    sections = [f'[checkpoints.job-{number}]\nuri = "{uri}"\n' for number, uri in enumerate(uris)]
    file = directory / "kctl.toml"
    file.write_text(f'[clusters.main]\nbootstrap_servers = "{servers}"\n{"".join(sections)}')
    os.environ.update(env)
    with running_exporter(directory, "-c", str(file), is_forked=False) as running:
        yield running


def watched(running: Exporter) -> int:
    return len(running.samples().of("kctl_group_lag", "group"))


def measure(running: Exporter, seconds: float, folders: list[Folder], requests: Callable[[], int]) -> dict[str, float]:
    """Over so many seconds, in which each checkpoint gets a batch a minute."""
    process = psutil.Process(running.process.pid)
    began, before, asked = time.monotonic(), sum(process.cpu_times()[:2]), requests()
    for number in range(int(seconds // 60)):
        for folder in folders:
            add_batch(folder, 3 + number)
        threading.Event().wait(max(began + 60 * (number + 1) - time.monotonic(), 0))
    took = time.monotonic() - began
    return {
        "core_percent": round(100 * (sum(process.cpu_times()[:2]) - before) / took, 2),
        "resident_mib": round(process.memory_info().rss / 2**20, 1),
        "requests_per_minute": round(60 * (requests() - asked) / took, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of watching checkpoints")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="k", dir="/var/tmp") as place,
        KafkaBroker(Path(place, "kafka")) as broker,
        ObjectStoreServer(Path(place, "s3")) as server,
        CountingProxy(server.port, 0.0) as proxy,
    ):
        topics.create_topic(broker.bootstrap_servers, "orders", 2)
        topics.produce(broker.bootstrap_servers, "orders", {0: 40, 1: 40})
        env = {"AWS_ENDPOINT_URL": proxy.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
        if server.keys is not None:
            env |= {"AWS_ACCESS_KEY_ID": server.keys.id, "AWS_SECRET_ACCESS_KEY": server.keys.secret}
        names = [f"job-{number}" for number in range(options.count)]
        places: dict[str, tuple[list[Folder], list[str]]] = {
            "none": ([], []),
            "folders": ([LocalFolder(Path(place, "jobs", name)) for name in names], []),
            "s3": ([server.folder(f"jobs/{name}") for name in names], [f"s3://{BUCKET}/jobs/{name}" for name in names]),
        }
        for kind, (folders, uris) in places.items():
            for name, folder in zip(names, folders, strict=False):
                if kind == "folders":
                    Path(place, "jobs", name, "sources", "0").mkdir(parents=True)
                create(folder)
            own = uris or [str(Path(place, "jobs", name)) for name in names[: len(folders)]]
            directory = Path(place, f"exporter-{kind}")
            directory.mkdir()
            began = time.monotonic()
            with exporter(directory, broker.bootstrap_servers, own, env) as running:
                eventually(lambda: watched(running) == len(own), 300)  # noqa: B023
                shown = time.monotonic() - began
                progress(f"{kind}: all are shown (load {os.getloadavg()[0]:.1f})")
                row = measure(running, options.seconds, folders, lambda: sum(proxy.requests.values()))
            line = {
                "benchmark": "checkpoints",
                "place": kind,
                "count": len(own),
                "shown_seconds": round(shown, 1),
                **row,
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
