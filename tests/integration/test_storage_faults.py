"""Processes killed inside a put, claim or settle; full disks, and files that cannot be written.

A child dies by SIGKILL after a random number of its steps, so inside the next step.
"""

import filecmp
import multiprocessing
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kctl_agent.storage.base import Storage, StorageUnusable
from kctl_agent.storage.block import BinaryColumn
from kctl_agent.storage.chunk import Chunk, StoredOffset
from kctl_agent.storage.file import FileStorage
from kctl_agent.storage.redis import RedisStorage
from tests.conformance.given import chunk, everything, put, stored, total
from tests.conftest import eventually
from tests.servers.redis_server import RedisServer, require_redis

KILLS = pytest.mark.parametrize("kills", [6, pytest.param(20, marks=pytest.mark.long)])
FORK = multiprocessing.get_context("fork")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system: needs root")


@pytest.fixture(params=["file", "redis"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    with ExitStack() as stack:
        found: Storage
        if request.param == "file":
            found = FileStorage(tmp_path / "s.sqlite", block_messages=5)
        else:
            require_redis()
            server = stack.enter_context(RedisServer(tmp_path / "r"))
            found = RedisStorage(server.url, "readers", block_messages=5)
        found.prepare()
        yield stack.enter_context(closing(found))


def killed_at_work(work: Callable[[int], None], steps: int) -> None:
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


@pytest.mark.shows("a kill in a put, claim or settle, a power cut or a failed write loses no counted message")
@KILLS
def test_a_put_that_was_killed_is_there_whole_or_not_at_all(storage: Storage, kills: int) -> None:
    chance = random.Random(1)
    storage.init_offsets([StoredOffset("t", 0, "A", 0)])
    storage.close()

    def work(acknowledged: int) -> None:
        start = storage.stored_offsets([("t", 0)])[("t", 0)].next
        while True:
            put(storage, chunk(start, start + 23))
            start += 23
            os.write(acknowledged, b".")

    for _ in range(kills):
        killed_at_work(work, chance.randrange(1, 12))
        end = storage.stored_offsets([("t", 0)])[("t", 0)].next
        assert stored(storage) == list(range(end))
        storage.close()

    assert end >= kills * 23
    assert total(storage) == (end, 0, 0, 0)


@KILLS
def test_what_a_killed_sinker_held_comes_again_and_nothing_else_does(storage: Storage, kills: int) -> None:
    chance = random.Random(2)
    count = 2000
    storage.init_offsets([StoredOffset("t", 0, "A", 0)])
    put(storage, chunk(0, count))
    storage.close()
    read, handled_by = os.pipe()  # 4 bytes for each message that a handler has seen

    def work(acknowledged: int) -> None:
        while claims := storage.claim("sinker", 10, 600.0):
            for claim in claims:
                for message in claim.messages:
                    os.write(handled_by, message.offset.to_bytes(4, "big"))
                acks = [message.offset % 7 != 0 or message.tries > 0 for message in claim.messages]
                storage.settle(claim, acks)
                os.write(acknowledged, b".")

    for _ in range(kills):
        killed_at_work(work, chance.randrange(1, 15))
        leased = storage.stats().processing
        assert leased <= 20
        assert storage.release("sinker", count_try=True) == leased
        storage.close()
    rest = everything(storage, "last")
    os.close(handled_by)
    with os.fdopen(read, "rb") as pipe:
        raw = pipe.read()
    seen = Counter(int.from_bytes(raw[i : i + 4], "big") for i in range(0, len(raw), 4))
    seen.update(message.offset for message in rest)

    assert set(seen) == set(range(count)), "something was lost"
    again = sum(max(times - (2 if offset % 7 == 0 else 1), 0) for offset, times in seen.items())
    print(f"handled again because of {kills} kills: {again}")
    assert again <= kills * 20
    assert total(storage) == (0, 0, 0, 0)


class FailingDisk:
    """A file system with room on a disk without room, so that writing back fails, as on a failing disk.

    Without `dioread_lock`, if ext4 (Linux 6.18) writes again an extent that could not be written, it does not put the
    extent into the file. After a power cut the copied data exists, but not the record of where it is.
    """

    def __init__(self, folder: Path) -> None:
        self.place = folder / "mounted"
        self._memory, self._after, self._ballast = folder / "memory", folder / "after", folder / "memory" / "ballast"
        self._mounted: list[Path] = []
        self._mount(self._memory, "-t", "tmpfs", "-o", "size=32m", "none")
        disk = self._memory / "disk"
        with disk.open("wb") as file:
            file.truncate(64 << 20)
        self._run("mkfs.ext4", "-q", "-F", "-b", "4096", "-N", "64", "-J", "size=4,location=100", str(disk))
        with disk.open("r+b") as file:  # the file system's own blocks and its journal have room
            own = file.read(6 << 20)
            file.seek(0)
            file.write(own)
        self._mount(self.place, "-o", "loop,dioread_lock", str(disk))

    def fill(self) -> None:
        with suppress(OSError), self._ballast.open("wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(4096))

    def free(self) -> None:
        self._ballast.unlink()

    def after_a_power_cut(self) -> Path:
        """The file system without what is only in memory. The kernel may write its journal during a copy, which gives a
        disk that never existed. So the copy is repeated until the disk has not changed meanwhile."""
        self._mount(self._after, "-t", "tmpfs", "-o", "size=32m", "none")
        disk = self._after / "disk"
        for _ in range(20):
            self._run("cp", "--sparse=always", str(self._memory / "disk"), str(disk))
            if filecmp.cmp(self._memory / "disk", disk, shallow=False):
                break
        else:
            raise OSError("the disk changes as fast as it is copied")
        place = self._after / "mounted"
        self._mount(place, "-o", "loop,dioread_lock", str(disk))
        return place

    def close(self) -> None:
        for place in reversed(self._mounted):
            self._run("umount", "--lazy", str(place))

    def _mount(self, place: Path, *words: str) -> None:
        place.mkdir()
        self._run("mount", *words, str(place))
        self._mounted.append(place)

    def _run(self, *command: str) -> None:
        environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"{command[0]}: {done.stderr or done.stdout}")


@pytest.fixture
def failing_disk(short_dir: Path) -> Iterator[FailingDisk]:
    try:
        disk = FailingDisk(short_dir)
    except OSError as error:
        subprocess.run(["umount", str(short_dir / "memory")], capture_output=True)
        pytest.skip(f"a file system in a file cannot be made and mounted here: {error}")
    yield disk
    disk.close()


def forget_what_is_in_memory(path: Path) -> None:
    # If memory is short, the kernel does this to pages that count as written.
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


@needs_root
@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_write_that_the_disk_rejected_does_not_count(failing_disk: FailingDisk, is_forgotten: bool) -> None:
    path = failing_disk.place / "s.sqlite"
    values = BinaryColumn(np.full(5_000, 300, np.int32), bytes(300 * 5_000))
    columns = replace(chunk(0, 5_000).columns, values=values)
    chunks = [replace(chunk(0, 5_000), partition=number, columns=columns) for number in range(3)]

    def committed(of: FileStorage) -> int | None:
        try:
            return sum(stored.next for stored in of.stored_offsets([("t", number) for number in range(3)]).values())
        except StorageUnusable:
            return None

    with closing(FileStorage(path)) as storage:
        storage.prepare()
        storage.init_offsets([StoredOffset("t", number, "A", 0) for number in range(3)])
        put(storage, chunks[0])
        Path(f"{path}-sync-failures").mkdir()
        os.sync()
        failing_disk.fill()
        writers = [storage.writer() for _ in range(2)]
        for writer, each in zip(writers, chunks[1:], strict=True):
            writer.put(each)

        for writer in writers:
            with pytest.raises(StorageUnusable, match="could not be synced"):
                writer.close()
        with closing(FileStorage(path)) as later:
            assert committed(later) is None, "it was not there when the disk failed"
        if is_forgotten:
            forget_what_is_in_memory(path.with_name("s.sqlite-wal"))
        failing_disk.free()

        for each in chunks[1:]:
            eventually(lambda each=each: is_put(storage, each), what="it cannot be put again")
        after = failing_disk.after_a_power_cut() / "s.sqlite"
        with closing(FileStorage(after)) as found:
            assert committed(found) == 15_000
            assert stored(found) == [*range(5_000)] * 3
        assert eventually(lambda: committed(storage)) == 15_000
        assert stored(storage) == [*range(5_000)] * 3


def is_put(storage: Storage, each: Chunk) -> bool:
    try:
        put(storage, each)
    except StorageUnusable:
        return False
    return True
