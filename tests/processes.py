"""Questions about processes that may end meanwhile."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import psutil


def alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    return [each for each in processes if _status(each) not in (None, psutil.STATUS_ZOMBIE)]


def command_line(process: psutil.Process) -> list[str]:
    """Returns no words if the process has ended: the kernel keeps none for a zombie, and psutil raises."""
    try:
        words: list[str] = process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []
    return words


async def until(predicate: Callable[[], bool], seconds: float = 60.0) -> None:
    """Waits without blocking the loop that supervises processes."""
    async with asyncio.timeout(seconds):
        while not predicate():  # noqa: ASYNC110 - processes and their files have no event
            await asyncio.sleep(0.01)


@contextmanager
def stopped(pids: Iterable[int]) -> Iterator[None]:
    pids = list(pids)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def _status(process: psutil.Process) -> str | None:
    try:
        status: str = process.status()
    except psutil.NoSuchProcess:
        return None
    return status
