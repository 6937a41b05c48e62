"""Messages per second that one process takes out of a storage with a handler that does nothing, beside other queues.

Blocks of 500 messages of 100 bytes. Each storage is drained three times, in turns within one run, so that whatever else
the machine does falls on each: as it is (`plain`), with 10,000 blocks leased to others (`in_flight`), with 100,000 dead
letters (`dead`). Redis is a real redis-server on a Unix socket with `appendfsync always`.

Beside them: persist-queue and litequeue (files, a message at a time: they have no blocks); in Redis the list queue of
RPOPLPUSH and LREM with 10,000 messages in flight, and a stream with a consumer group and our blocks (XREADGROUP, XACK
and XDEL) with 10,000 entries in flight.

    python -m benchmarks.storage_drain [--messages 400000]

Prints a JSON line for each. Targets: file 100,000/s, Redis 150,000/s, and neither slower than 0.9 of `plain` with
blocks in flight or dead letters.
"""

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import litequeue
import persistqueue
import redis

from benchmarks._storages import BLOCK, IN_FLIGHT, STATES, VALUE_BYTES, burden, chunks, fill, redis_server
from kctl_agent.storage.block import BLOCK_BYTES, Block
from kctl_agent.storage.file import FileStorage
from kctl_agent.storage.put_rules import cut
from kctl_agent.storage.redis import RedisStorage

ROUNDS = 20
PEER_MESSAGES = 4000
LIST_BATCH = 100
TARGETS = {"file": 100_000.0, "redis": 150_000.0}
FLAT = 0.9

Step = Callable[[], int]
"""Takes out a share of the messages, returns how many."""


def main() -> None:
    parser = argparse.ArgumentParser(description="how fast a storage is emptied")
    parser.add_argument("--messages", type=int, default=400_000, help="in each storage")
    messages = parser.parse_args().messages
    place = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    try:
        with redis_server(place) as url:
            steps: dict[str, Step] = {}
            for state in STATES:
                steps[f"file_{state}"] = drain(FileStorage(place / state), state, messages)
                steps[f"redis_{state}"] = drain(RedisStorage(url, state), state, messages)
            steps["file_persist_queue"] = persist_queue(place)
            steps["file_litequeue"] = lite_queue(place)
            steps["redis_list"] = list_queue(url)
            steps["redis_stream"] = stream(url, messages)
            report(in_turns(steps))
    finally:
        shutil.rmtree(place)


def in_turns(steps: dict[str, Step]) -> dict[str, list[float]]:
    """Messages per second of each in each round, there and back, without the first round."""
    rates: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(ROUNDS):
        for name, step in list(steps.items())[:: 1 if turn % 2 else -1]:
            started = perf_counter()
            count = step()
            rates[name].append(count / (perf_counter() - started))
    return {name: found[1:] for name, found in rates.items()}


def report(rates: dict[str, list[float]]) -> None:
    """Medians; a ratio is the median of those of each round, so that it compares what ran at the same time."""
    for name, found in rates.items():
        kind, _, state = name.partition("_")
        rate = statistics.median(found)
        ratio = statistics.median(one / plain for one, plain in zip(found, rates[f"{kind}_plain"], strict=True))
        line: dict[str, object] = {"benchmark": f"storage_drain_{name}", "messages_per_second": round(rate)}
        if state == "plain":
            line |= {"target": TARGETS[kind], "met": rate >= TARGETS[kind]}
        elif state in ("in_flight", "dead"):
            line |= {"ratio_to_plain": round(ratio, 2), "target": FLAT, "met": ratio >= FLAT}
        else:
            line |= {"ours_is_times_faster": round(1 / ratio, 1), "met": True}
        print(json.dumps(line))


def drain(storage: FileStorage | RedisStorage, state: str, messages: int) -> Step:
    burden(storage, state)
    fill(storage, messages)
    share = messages // ROUNDS

    def step() -> int:
        taken = 0
        while taken < share:
            for claim in storage.claim("sinker", BLOCK, 60.0):
                acks = [True] * len(claim.messages)
                storage.settle(claim, acks)
                taken += len(acks)
        return taken

    return step


def persist_queue(place: Path) -> Step:
    queue = persistqueue.SQLiteAckQueue(str(place / "persist-queue"), auto_commit=True)
    for _ in range(PEER_MESSAGES):
        queue.put(b"x" * VALUE_BYTES)

    def step() -> int:
        for _ in range(PEER_MESSAGES // ROUNDS):
            queue.ack(queue.get(block=False))
        return PEER_MESSAGES // ROUNDS

    return step


def lite_queue(place: Path) -> Step:
    queue = litequeue.LiteQueue(str(place / "litequeue"))
    for _ in range(PEER_MESSAGES):
        queue.put("x" * VALUE_BYTES)

    def step() -> int:
        for _ in range(PEER_MESSAGES // ROUNDS):
            queue.done(queue.pop().message_id)
        return PEER_MESSAGES // ROUNDS

    return step


def list_queue(url: str) -> Step:
    """100 sinkers with a batch of 100 each: the oldest is acknowledged while the others are in flight."""
    client = redis.Redis.from_url(url)
    count = IN_FLIGHT + PEER_MESSAGES
    client.lpush("pending", *(b"%08d" % n + b"x" * VALUE_BYTES for n in range(count)))

    def fetch() -> list[Any]:
        with client.pipeline(transaction=False) as pipeline:
            for _ in range(LIST_BATCH):
                pipeline.rpoplpush("pending", "processing")
            return pipeline.execute()  # type: ignore[no-any-return]

    in_flight = [fetch() for _ in range(IN_FLIGHT // LIST_BATCH)]

    def step() -> int:
        for _ in range(PEER_MESSAGES // ROUNDS // LIST_BATCH):
            in_flight.append(fetch())
            with client.pipeline(transaction=False) as pipeline:
                for message in in_flight.pop(0):
                    pipeline.lrem("processing", 1, message)
                pipeline.execute()
        return PEER_MESSAGES // ROUNDS

    return step


def stream(url: str, messages: int) -> Step:
    client = redis.Redis.from_url(url)
    client.xgroup_create("stream", "sinkers", "0", mkstream=True)
    with client.pipeline(transaction=False) as pipeline:
        for _ in range(IN_FLIGHT):
            pipeline.xadd("stream", {"body": b""})
        pipeline.execute()
    client.xreadgroup("sinkers", "others", {"stream": ">"}, count=IN_FLIGHT)
    for chunk in chunks(0, messages):
        for block in cut(chunk, 0, BLOCK, BLOCK_BYTES, "none"):
            client.xadd("stream", {"first": block.first, "last": block.last, "count": block.count, "body": block.body})
    share = messages // ROUNDS

    def step() -> int:
        taken = 0
        while taken < share:
            for id_, fields in next(iter(_entries(client))):
                first, last, count = (int(fields[name]) for name in (b"first", b"last", b"count"))
                taken += len(Block("orders", None, 0, first, last, count, fields[b"body"]).messages())
                with client.pipeline(transaction=True) as pipeline:
                    pipeline.xack("stream", "sinkers", id_)
                    pipeline.xdel("stream", id_)
                    pipeline.execute()
        return taken

    return step


def _entries(client: Any) -> Iterator[list[tuple[bytes, dict[bytes, bytes]]]]:
    """The next entry, whichever shape this protocol version has."""
    found = client.xreadgroup("sinkers", "me", {"stream": ">"}, count=1)
    for _, entries in found.items() if isinstance(found, dict) else found:
        yield entries[0] if isinstance(entries[0], list) else entries


if __name__ == "__main__":
    main()
