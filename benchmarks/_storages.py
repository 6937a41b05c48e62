"""Storages to be emptied by the benchmarks: filled with blocks of 500 messages, and burdened with what must not matter.

States: `plain`; `in_flight`, 10,000 blocks leased to others; `dead`, 100,000 dead letters. Redis is a real redis-server
on a Unix socket, set as in docs/storage.md.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import numpy as np
import redis

from kctl_agent.message import Message
from kctl_agent.storage.base import Storage
from kctl_agent.storage.block import BinaryColumn, Columns
from kctl_agent.storage.chunk import Chunk, StoredOffset
from kctl_agent.storage.file import FileStorage
from kctl_agent.storage.redis import RedisStorage

__all__ = ["BLOCK", "IN_FLIGHT", "STATES", "TOPIC", "VALUE_BYTES", "burden", "chunks", "fill", "redis_server"]

TOPIC = "orders"
BLOCK = 500
CHUNK = 10_000
VALUE_BYTES = 100
IN_FLIGHT = 10_000
DEAD = 100_000
STATES = ("plain", "in_flight", "dead")
START_SECONDS = 20


def burden(storage: FileStorage | RedisStorage, state: str) -> None:
    """Prepare a new storage for this state."""
    storage.prepare()
    if state == "in_flight":
        assert _lease_singles(storage) == IN_FLIGHT
    if state == "dead":
        storage.dead_letter([Message(TOPIC, 2, offset, None, b"x" * VALUE_BYTES, 0) for offset in range(DEAD)], "no")
    storage.init_offsets([StoredOffset(TOPIC, 0, None, 0)])


def fill(storage: Storage, messages: int) -> None:
    """Put so many more, a multiple of 10,000, behind those that were put before."""
    start = storage.stored_offsets([(TOPIC, 0)])[(TOPIC, 0)].next
    with storage.writer() as writer:
        for chunk in chunks(start, messages):
            writer.put(chunk)


def chunks(start: int, messages: int) -> Iterator[Chunk]:
    random = np.random.default_rng(1)
    for begin in range(start, start + messages, CHUNK):
        offsets = np.arange(begin, begin + CHUNK)
        values = BinaryColumn(np.full(CHUNK, VALUE_BYTES, np.int32), random.bytes(CHUNK * VALUE_BYTES))
        keys = BinaryColumn(np.full(CHUNK, 8, np.int32), random.bytes(CHUNK * 8))
        yield Chunk(TOPIC, 0, None, begin, begin + CHUNK, 1, Columns(offsets, offsets, keys, values, None))


def _lease_singles(storage: FileStorage | RedisStorage) -> int:
    """Blocks of one message, all leased to others for an hour."""
    storage.init_offsets([StoredOffset(TOPIC, 1, None, 0)])
    offsets = np.arange(IN_FLIGHT)
    values = BinaryColumn(np.full(IN_FLIGHT, 4, np.int32), b"busy" * IN_FLIGHT)
    kept, storage.block_messages = storage.block_messages, 1
    with storage.writer() as writer:
        writer.put(Chunk(TOPIC, 1, None, 0, IN_FLIGHT, 1, Columns(offsets, offsets, None, values, None)))
    storage.block_messages = kept
    return len(storage.claim("others", IN_FLIGHT, 3600.0))


@contextmanager
def redis_server(place: Path, appendfsync: str = "always") -> Iterator[str]:
    """Its URL."""
    folder = place / f"redis-{appendfsync}"
    folder.mkdir(exist_ok=True)
    path = folder / "redis.sock"
    process = subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", str(path), "--dir", str(folder), "--save", "",
         "--appendonly", "yes", "--appendfsync", appendfsync, "--auto-aof-rewrite-min-size", "1gb"],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = monotonic() + START_SECONDS
        while not _answers(path):
            assert monotonic() < deadline, "redis-server does not answer"
        yield f"unix://{path}"
    finally:
        process.terminate()
        process.wait()


def _answers(path: Path) -> bool:
    try:
        return bool(redis.Redis(unix_socket_path=str(path), retry=None).ping())
    except redis.RedisError:
        return False
