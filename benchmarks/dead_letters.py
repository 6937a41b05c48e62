"""A million dead letters, found: how long a filtered page and the groups take, and what the indexes cost.

Dead letters of 20 causes in 50 partitions, each with a JSON value of 300 bytes and a traceback of 600, in a file and in
a real Redis (`appendfsync no`: they are only read). Each filter is asked for a page of 100 at places all over them, by
turns; then the groups with 24 hours. What no index knows (offsets, key, text, tries, traceback) is looked for a tenth
of a second at a time: a page is what was found by then; its groups read on to the end.

    python -m benchmarks.dead_letters [--dead 1000000] [--only file]

Prints a JSON line for each storage and filter: milliseconds (median, p95), rows; bytes of each dead letter on disk or
in Redis's memory; seconds that it took to store them, to remove a fiftieth and to put back all others. Targets: p95 of
a page below 200 ms, groups below 1 s.
"""

import argparse
import json
import random
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import redis

from benchmarks._storages import redis_server
from kctl_agent.message import Message
from kctl_agent.storage.base import Storage
from kctl_agent.storage.claim import DeadLetter
from kctl_agent.storage.file import FileStorage
from kctl_agent.storage.numbered_dead_letters import Place
from kctl_agent.storage.redis import RedisStorage
from kctl_agent.storage.selection import Selection

T = TypeVar("T")

BATCH = 5000
CAUSES = 20
PARTITIONS = 50
PAGE_ROWS = 100
PAGE_SECONDS = 0.1
PAGES = 40
PAGE_MS, GROUPS_MS = 200.0, 1000.0
FILTERS = {
    "everything": Selection(),
    "topic and partition": Selection(topic="orders", partition=7),
    "error class": Selection(error_class="Error3"),
    "line": Selection(line="shop.py:13"),
    "class and partition": Selection(error_class="Error3", partition=7),
    "age": Selection(older_than_seconds=0.0),
    "offsets": Selection(offset_from=500_000, offset_to=500_100),
    "tries": Selection(tries_from=9),
    "traceback": Selection(traceback="nowhere"),
    "key": Selection(key="customer-77"),
    "text in the value": Selection(text="nowhere"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="how long dead letters are looked for")
    parser.add_argument("--dead", type=int, default=1_000_000, help="in each storage")
    parser.add_argument("--only", choices=("file", "redis"), help="one of the storages")
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    try:
        with redis_server(place, "no") as url:
            client = redis.Redis.from_url(url)
            storages: dict[str, tuple[Storage, Callable[[], int]]] = {
                "file": (FileStorage(place / "storage"), lambda: sum(f.stat().st_size for f in place.glob("storage*"))),
                "redis": (RedisStorage(url, "dead"), lambda: int(client.info("memory")["used_memory"])),
            }
            for name, (storage, used) in storages.items():
                if given.only not in (None, name):
                    continue
                storage.prepare()
                before = used()
                seconds = filled(storage, given.dead)
                each = round((used() - before) / given.dead)
                line = {"dead": given.dead, "stored_seconds": round(seconds, 1), "bytes_each": each}
                print(json.dumps({"storage": name, **line}), flush=True)
                for line in measured(storage):
                    print(json.dumps({"storage": name, **line}), flush=True)
    finally:
        shutil.rmtree(place)


def filled(storage: Storage, count: int) -> float:
    """Seconds."""
    began = perf_counter()
    for begin in range(0, count, BATCH):
        numbers = range(begin, min(begin + BATCH, count))
        storage.dead_letter([message(n) for n in numbers], [error(n) for n in numbers])
    return perf_counter() - began


def message(number: int) -> Message:
    value = json.dumps({"order": number, "customer": number % 1000, "items": ["x" * 40] * 6}).encode()
    key = f"customer-{number % 1000}".encode()
    return Message("orders", number % PARTITIONS, number, key, value, 1_700_000_000_000 + number, (), 5)


def error(number: int) -> str:
    cause = number * 7919 % CAUSES
    frames = "".join(
        f'  File "/srv/app/shop.py", line {line}, in step\n    do({line})\n' for line in range(cause, cause + 10)
    )
    return (
        f"the handler shop:handle raised Error{cause}: order {number} on orders-0 offset {number} (1 message)\n"
        f"Traceback (most recent call last):\n{frames}Error{cause}: order {number}"
    )


def measured(storage: Storage) -> Iterator[dict[str, object]]:
    first, last = (Place.of(each) for each in ends(storage))
    draw = random.Random(1)
    for name, selection in FILTERS.items():
        took, rows = [], 0
        for _ in range(PAGES):
            at = draw.uniform(first.at, last.at)
            milliseconds, page = timed(
                partial(storage.dead_page, selection, str(Place(at, 0)), PAGE_ROWS, PAGE_SECONDS)
            )
            took.append(milliseconds)
            rows += len(page.rows)
        yield {"page": name, **summary(took, PAGE_MS), "rows": rows / PAGES}
    for name, selection in FILTERS.items():
        took = [timed(partial(storage.dead_groups, selection, 24))[0] for _ in range(5 if selection.is_indexed else 2)]
        yield {"groups": name, **summary(took, GROUPS_MS)}
    for verb, change in (
        ("removed", partial(storage.remove_dead, Selection(partition=4))),
        ("put back", storage.requeue_dead),
    ):
        milliseconds, count = timed(change)
        yield {"changed": verb, "messages": count, "seconds": round(milliseconds / 1000, 2)}


def ends(storage: Storage) -> Iterator[DeadLetter]:
    """The first and the last."""
    yield storage.dead_page(limit=1).rows[0]
    newest = storage.find_dead(max((group.newest for group in storage.dead_groups()), key=int))
    assert newest is not None
    yield newest


def timed(do: Callable[[], T]) -> tuple[float, T]:
    """Milliseconds, and the result."""
    began = perf_counter()
    result = do()
    return (perf_counter() - began) * 1000, result


def summary(took: list[float], target: float) -> dict[str, object]:
    p95 = statistics.quantiles(took, n=20, method="inclusive")[-1]
    return {"median_ms": round(statistics.median(took), 1), "p95_ms": round(p95, 1), "is_met": p95 < target}


if __name__ == "__main__":
    main()
