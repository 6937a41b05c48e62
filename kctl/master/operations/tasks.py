"""Several things at once for one operation, and what cannot be taken back of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from kctl.errors import OperationUnknown

T = TypeVar("T")


@contextmanager
def goes_on(what: str) -> Iterator[None]:
    """Around what no operation can take back. Raises OperationUnknown instead of being cancelled."""
    try:
        yield
    except asyncio.CancelledError as cancelled:
        raise OperationUnknown(what) from cancelled


async def ended(work: Iterable[Coroutine[object, object, T]]) -> list[T | BaseException]:
    """What each has come to, its error where it failed. Cancelled, all are, and each comes to its end."""
    tasks = [asyncio.ensure_future(each) for each in work]
    with suppress(asyncio.CancelledError):  # it is in what follows, unless all were done
        await asyncio.gather(*tasks, return_exceptions=True)
    return await asyncio.gather(*tasks, return_exceptions=True)


async def together(work: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """All of it to its end; then what may still happen is raised, or the first error."""
    outcomes = await ended(work)
    errors = [each for each in outcomes if isinstance(each, BaseException)]
    unknown = [str(each) for each in errors if isinstance(each, OperationUnknown)]
    if unknown:
        raise OperationUnknown("; ".join(unknown))
    if errors:
        raise errors[0]
    return [each for each in outcomes if not isinstance(each, BaseException)]
