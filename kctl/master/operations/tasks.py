"""Concurrent steps of one operation, and steps that cannot be reverted."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from kctl.errors import OperationUnknown

T = TypeVar("T")


@contextmanager
def goes_on(what: str) -> Iterator[None]:
    """Wraps an irreversible step: a cancel raises OperationUnknown."""
    try:
        yield
    except asyncio.CancelledError as cancelled:
        raise OperationUnknown(what) from cancelled


async def ended(work: Iterable[Coroutine[object, object, T]]) -> list[T | BaseException]:
    """Returns each result or error. If cancelled, cancels all and waits for them."""
    tasks = [asyncio.ensure_future(each) for each in work]
    with suppress(asyncio.CancelledError):  # the next line returns it, unless all were done
        await asyncio.gather(*tasks, return_exceptions=True)
    return await asyncio.gather(*tasks, return_exceptions=True)


async def together(work: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """Runs all to the end; then raises OperationUnknown if any did, or the first error."""
    outcomes = await ended(work)
    errors = [each for each in outcomes if isinstance(each, BaseException)]
    unknown = [str(each) for each in errors if isinstance(each, OperationUnknown)]
    if unknown:
        raise OperationUnknown("; ".join(unknown))
    if errors:
        raise errors[0]
    return [each for each in outcomes if not isinstance(each, BaseException)]
