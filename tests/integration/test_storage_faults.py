"""Processes that are killed inside a put, a claim or a settle; disks that are full, files that cannot be written.

Children are forked and killed by SIGKILL after a random number of their steps: the kill lands inside the next one.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from kctl_agent.storage.base import Mark, Storage, StorageUnusable
from kctl_agent.storage.conformance.given import chunk, everything, put, stored, total
from kctl_agent.storage.file import FileStorage
from kctl_agent.storage.redis import RedisStorage
from tests.redis_server import RedisServer, is_installed, require_redis

ROUNDS = 20
FORK = multiprocessing.get_context("fork")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system: needs root")


@pytest.fixture(scope="module", autouse=True)
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer | None]:
    from tests.conftest import eventually

    if not is_installed():
        yield None
        return
    server = RedisServer(tmp_path_factory.mktemp("r"), eventually)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(params=["file", "redis"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer | None) -> Iterator[Storage]:
    found: Storage
    if request.param == "file":
        found = FileStorage(tmp_path / "s.sqlite", block_messages=5)
    else:
        require_redis()
        assert redis_server is not None
        found = RedisStorage(redis_server.url, request.node.name, block_messages=5)
    found.prepare()
    with closing(found):
        yield found


def killed_at_work(work: Callable[[int], None], steps: int) -> None:
    """Run `work(descriptor)` in a child that writes a byte per step, and kill it after so many."""
    read, write = os.pipe()
    child = FORK.Process(target=work, args=(write,))
    child.start()
    os.close(write)
    for _ in range(steps):
        if not os.read(read, 1):
            break
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    os.close(read)


def test_a_put_that_was_killed_is_there_whole_or_not_at_all(storage: Storage) -> None:
    chance = random.Random(1)
    storage.place_marks([Mark("t", 0, "A", 0, None)])
    storage.close()

    def work(told: int) -> None:
        start = storage.marks([("t", 0)])[("t", 0)].next
        while True:
            put(storage, chunk(start, start + 23))
            start += 23
            os.write(told, b".")

    for _ in range(ROUNDS):
        killed_at_work(work, chance.randrange(1, 12))
        end = storage.marks([("t", 0)])[("t", 0)].next
        assert stored(storage) == list(range(end))
        storage.close()

    assert end >= ROUNDS * 23
    assert total(storage) == (end, 0, 0, 0)


def test_what_a_killed_sinker_held_comes_again_and_nothing_else_does(storage: Storage) -> None:
    chance = random.Random(2)
    count = 2000
    storage.place_marks([Mark("t", 0, "A", 0, None)])
    put(storage, chunk(0, count))
    storage.close()
    read, handled_by = os.pipe()  # 4 bytes for each message that a handler has seen

    def work(told: int) -> None:
        while claims := storage.claim("sinker", 10, 600.0):
            for claim in claims:
                for message in claim.messages:
                    os.write(handled_by, message.offset.to_bytes(4, "big"))
                acks = [message.offset % 7 != 0 or message.tries > 0 for message in claim.messages]
                storage.settle(claim, acks, max_tries=5, reason="seven")
                os.write(told, b".")

    for _ in range(ROUNDS):
        killed_at_work(work, chance.randrange(1, 15))
        held = storage.stats().processing
        assert held <= 20
        assert storage.release("sinker", count_try=True) == held
        storage.close()
    rest = everything(storage, "last")
    os.close(handled_by)
    with os.fdopen(read, "rb") as pipe:
        raw = pipe.read()
    seen = Counter(int.from_bytes(raw[i : i + 4], "big") for i in range(0, len(raw), 4))
    seen.update(message.offset for message in rest)

    assert set(seen) == set(range(count)), "something was lost"
    again = sum(max(times - (2 if offset % 7 == 0 else 1), 0) for offset, times in seen.items())
    print(f"handled again because of {ROUNDS} kills: {again}")
    assert again <= ROUNDS * 20
    assert total(storage) == (0, 0, 0, 0)


def test_claimers_in_many_processes_share_without_overlap(storage: Storage) -> None:
    storage.place_marks([Mark("t", 0, "A", 0, None)])
    put(storage, chunk(0, 1000))
    storage.close()
    answers: multiprocessing.SimpleQueue[list[int]] = FORK.SimpleQueue()

    def work(name: str) -> None:
        answers.put([message.offset for message in everything(storage, name)])

    children = [FORK.Process(target=work, args=(str(n),)) for n in range(4)]
    for child in children:
        child.start()
    found = [offset for _ in children for offset in answers.get()]
    for child in children:
        child.join()
    answers.close()

    assert sorted(found) == list(range(1000))


@pytest.fixture
def small_disk(short_dir: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    place = short_dir / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(place)], capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@needs_root
def test_a_full_disk_is_told_and_what_was_stored_before_stays_and_goes_on(small_disk: Path) -> None:
    with closing(FileStorage(small_disk / "s.sqlite", block_messages=500)) as storage:
        storage.prepare()
        storage.place_marks([Mark("t", 0, "A", 0, None)])
        start = 0
        with pytest.raises(StorageUnusable, match=r"t-0 could not be stored: .*full"):  # noqa: PT012 - until it is full
            while True:
                put(storage, chunk(start, start + 5000))
                start += 5000
        assert start > 0
        assert storage.marks([("t", 0)])[("t", 0)].next == start
        assert total(storage) == (start, 0, 0, 0)
        with suppress(StorageUnusable):  # a lease may need room as well
            storage.claim("a", 1, 60.0)

        subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)

        put(storage, chunk(start, start + 5000))
        storage.release("a")
        assert [message.offset for message in everything(storage)] == list(range(start + 5000))


@needs_root
def test_a_file_that_cannot_be_written_is_told_and_used_again_when_it_can(short_dir: Path) -> None:
    path = short_dir / "s.sqlite"
    with closing(FileStorage(path)) as storage:
        storage.prepare()
        storage.place_marks([Mark("t", 0, "A", 0, None)])
    short_dir.chmod(0o755)
    answers: multiprocessing.SimpleQueue[str] = FORK.SimpleQueue()

    def work() -> None:
        os.setuid(65534)
        try:
            put(storage, chunk(0, 3))
            answers.put("stored")
        except StorageUnusable as error:
            answers.put(str(error))

    for rights, owner in ((0o444, 0), (0o644, 65534)):
        for each in (short_dir, *short_dir.iterdir()):
            os.chown(each, owner, owner)
        path.chmod(rights)
        child = FORK.Process(target=work)
        child.start()
        child.join()

    assert "readonly" in (first := answers.get()) or "unable to open" in first
    assert answers.get() == "stored"
    answers.close()


def test_a_damaged_file_is_told_and_a_copy_put_in_its_place_is_used(tmp_path: Path) -> None:
    path, copy = tmp_path / "s.sqlite", tmp_path / "copy"
    storage = FileStorage(path, block_messages=5)
    storage.prepare()
    storage.place_marks([Mark("t", 0, "A", 0, None)])
    put(storage, chunk(0, 5000))
    storage.close()
    shutil.copy(path, copy)
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    path.write_bytes(data)

    for use in (
        storage.stats,
        storage.prepare,
        lambda: storage.claim("a", 1, 60.0),
        lambda: put(storage, chunk(5000, 5001)),
    ):
        with pytest.raises(StorageUnusable, match=r"malformed|not a database"):
            use()
    storage.close()
    shutil.copy(copy, path)
    for each in tmp_path.glob("s.sqlite-*"):
        each.unlink()

    put(storage, chunk(5000, 5005))
    assert len(everything(storage)) == 5005
    storage.close()
