"""What a commit to a table in an object store costs, and the start of a worker there: requests and time. Without Spark,
on SeaweedFS (tests/object_store_server.py); each request passes a proxy that counts it and holds it for a while, for
such stores are not in the same machine.

Each commit is one of `lake_commits`: `begin` reads the stored offsets of 8 partitions and writes the plan, `commit`
lists the file, reads its footer, and writes the log's entry. The file is one row, and its `PUT` is not measured.
`start` is what a worker does before its first batch, but for the eight objects that it creates at once: this server has
them wait for a second.

- `new`: a table of one commit;
- `old`: one with 100,000 entries in its log, and a checkpoint 50 below the newest. Commits pass a checkpoint or two.

    python -m benchmarks.lake_commits_s3 [--commits 120] [--entries 100000] [--latency-ms 0 20]

Prints JSON lines. Target: in `old` a start takes at most 2 s more than in `new`, the longest commit at most 0.5 s more.
"""

import argparse
import io
import json
import os
import re
import socket
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks._fleet import progress
from benchmarks.lake_commits import PARTITIONS, SCHEMA, made
from kctl_agent.rpc.wire import JsonObject
from kctl_agent.storage.chunk import Advance, Binding, StoredOffset, TopicPartition
from kctl_agent.storage.kinds import open_lake
from kctl_agent.storage.lake.delta.log import LAST_CHECKPOINT, LOG, checkpoint_name, entry_name
from kctl_agent.storage.lake.folder import s3
from kctl_agent.storage.lake.storage import LakeStorage
from tests.object_store_server import ObjectStoreServer
from tests.proxies import UnconditionalProxy

AFTER_CHECKPOINT = 50
START_SECONDS, COMMIT_SECONDS = 2.0, 0.5
REQUEST = re.compile(rb"(GET|HEAD|PUT|POST|DELETE) (\S*) HTTP")
DEFAULTS = {"format": "delta", "partition_by": [], "target_file_bytes": 128 << 20, "merge_schema": False}


class CountingProxy(UnconditionalProxy):
    """Holds each request for so long, and counts it."""

    def __init__(self, port: int, latency_seconds: float) -> None:
        super().__init__(port)
        self._latency_seconds = latency_seconds
        self.requests: Counter[str] = Counter()

    def _forward(self, source: socket.socket, target: socket.socket, is_reply: bool) -> None:  # noqa: ARG002
        with suppress(OSError):
            while received := source.recv(1 << 16):
                if (found := REQUEST.match(received)) is not None:
                    self.requests["LIST" if b"list-type=" in found[2] else found[1].decode()] += 1
                    threading.Event().wait(self._latency_seconds)
                target.sendall(received)
            target.shutdown(socket.SHUT_RDWR)


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of a commit to a table in an object store, and of a start")
    parser.add_argument("--commits", type=int, default=120)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--latency-ms", type=float, nargs="+", default=(0.0, 20.0))
    options = parser.parse_args()
    s3.AT_ONCE = 1
    with (
        tempfile.TemporaryDirectory(prefix="k", dir="/var/tmp") as place,
        ObjectStoreServer(Path(place, "s3")) as server,
    ):
        for latency in options.latency_ms:
            new: JsonObject = {}
            for name, entries in (("new", 0), ("old", options.entries)):
                settings = server.settings(f"{name}-{latency:.0f}") | DEFAULTS
                grow(Path(place, f"{name}-{latency:.0f}"), settings, entries)
                progress(f"{name} is made (load {os.getloadavg()[0]:.1f})")
                with CountingProxy(server.port, latency / 1e3) as proxy:
                    row = measured(settings | {"endpoint": proxy.endpoint}, options.commits, proxy)
                new = new or row
                is_met = (
                    row["start_seconds"] <= new["start_seconds"] + START_SECONDS
                    and row["commit_ms_max"] <= new["commit_ms_max"] + COMMIT_SECONDS * 1e3
                )
                line = {"benchmark": f"lake_commits_s3_{name}", "entries": entries, "latency_ms": latency, **row}
                print(json.dumps(line | {"met": is_met}), flush=True)


def grow(local: Path, settings: JsonObject, entries: int) -> None:
    """A log of so many entries: that of a table in a folder, with other numbers."""
    if not entries:
        return
    newest = 2 * AFTER_CHECKPOINT
    made(local, newest, newest)
    folder, checkpoint = open_lake(settings).folder, entries - AFTER_CHECKPOINT
    [written] = (local / LOG).glob(f"{newest:020}.checkpoint.parquet")
    folder.write(checkpoint_name(checkpoint), written.read_bytes())
    folder.write(LAST_CHECKPOINT, json.dumps({"version": checkpoint, "size": newest + 2}).encode())
    contents = [(local / entry_name(each)).read_bytes() for each in range(1, newest + 1)]
    with ThreadPoolExecutor(8) as threads:
        done = threads.map(lambda each: folder.write(entry_name(each), contents[each % newest]), range(1, entries + 1))
        for _ in done:
            pass


def measured(settings: JsonObject, commits: int, proxy: CountingProxy) -> JsonObject:
    storage, partitions = opened(settings)  # imports what a first one does
    storage.init_offsets([StoredOffset(*tp, None, 0) for tp in partitions])
    settle(proxy)
    began = time.perf_counter()
    storage, _ = opened(settings)
    there = storage.stored_offsets(partitions)
    started, at_start = time.perf_counter() - began, settle(proxy)
    requests: Counter[str] = Counter()
    begin: list[float] = []
    commit: list[float] = []
    for number in range(commits):
        start = there[partitions[0]].next + number
        batch = timed(begin, lambda: storage.begin([Advance(*tp, 1, start, start + 1) for tp in partitions]))  # noqa: B023
        requests += settle(proxy)
        batch.folder.write("part-0.parquet", row())
        settle(proxy)
        timed(commit, batch.commit)
        requests += settle(proxy)
        storage.table.checkpoints.wait()
        settle(proxy)
    return {
        "start_seconds": round(started, 3),
        "start_requests": dict(at_start),
        "requests_per_commit": {kind: round(count / commits, 2) for kind, count in sorted(requests.items())},
        **milliseconds("begin", begin),
        **milliseconds("commit", commit),
    }


def opened(settings: JsonObject) -> tuple[LakeStorage, list[TopicPartition]]:
    storage = open_lake(settings)
    storage.prepare()
    storage.fit(SCHEMA)
    storage.bind(Binding("bench", "bench"))
    return storage, [("orders", each) for each in range(PARTITIONS)]


def settle(proxy: CountingProxy) -> Counter[str]:
    """What was asked since the last time."""
    found, proxy.requests = proxy.requests, Counter()
    return found


def timed(taken: list[float], do: Callable[[], Any]) -> Any:
    began = time.perf_counter()
    made = do()
    taken.append(time.perf_counter() - began)
    return made


def row() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    written = io.BytesIO()
    pq.write_table(pa.table({"topic": ["orders"], "offset": [1]}), written)
    return written.getvalue()


def milliseconds(name: str, seconds: list[float]) -> JsonObject:
    return {
        f"{name}_ms_p50": round(statistics.median(seconds) * 1e3, 1),
        f"{name}_ms_max": round(max(seconds) * 1e3, 1),
    }


if __name__ == "__main__":
    main()
