"""`/api/v1/dead-letters`: finds, shows, exports, requeues, deletes and sends dead letters.

`guard` requires a token of http.token_file even for reading, because dead letters contain messages. Callers that
may only read can use `/api/v1/dead-letter-classes`, which has only counts by error class.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import Field as DeclaredField
from dataclasses import fields
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator

from kctl.dead_letters.documents import Form, dead_letter_document, dead_letter_row, group_document
from kctl.dead_letters.storage import Verb
from kctl.dead_letters.workbench import Workbench
from kctl.errors import KctlError
from kctl.fields import moment, unix_seconds
from kctl.http.api.api import api_of
from kctl.http.errors import Error, JsonRoute, error_body
from kctl.http.guard import CALLER_KEY
from kctl_agent.errors import AgentError
from kctl_agent.rpc.messages import printable_name
from kctl_agent.storage.causes import public_class
from kctl_agent.storage.selection import Selection

if TYPE_CHECKING:
    from kctl_agent.storage.base import DeadLetterStore, Progress
    from kctl_agent.storage.claim import DeadLetter

_SOME_TEXT = Annotated[str, Field(min_length=1, max_length=1000)]
_TYPES = MappingProxyType(
    {
        "int | None": Annotated[int, Field(ge=0, le=2**63 - 1)] | None,
        "float | None": Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] | None,
        "str | None": _SOME_TEXT | None,
        "tuple[str, ...] | None": Annotated[list[_SOME_TEXT], Field(max_length=500)] | None,
    }
)
PAGE_SECONDS = 0.1
"""Time limit of a scan without an index. The page then has the rows found so far, and `next` continues."""
EXPORT_ROWS = 500
EXPORT_SECONDS = 1.0
_JSON_LINES = "application/jsonl"
_NO_STORE = {"cache-control": "no-store"}
_LINES: dict[int | str, dict[str, Any]] = {
    200: {"content": {_JSON_LINES: {}}, "description": "One JSON object a line"},
    409: {"model": Error, "description": "Rejected; nothing was changed"},
}
T = TypeVar("T")


def _parameter(declared: DeclaredField[Any]) -> Any:
    is_time = declared.metadata["metavar"] == "TIME"
    type_ = datetime | None if is_time else _TYPES[str(get_type_hints(Selection)[declared.name])]
    if "may_be_empty" in declared.metadata:
        type_ = Annotated[str, Field(max_length=1000)] | None
    return type_, Field(None, description=declared.metadata["help"])


class _Known(BaseModel):
    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _nearest(cls, given: Any) -> Any:
        for name in map(str, given if isinstance(given, dict) else ()):
            if name not in cls.model_fields and (near := get_close_matches(name, cls.model_fields, n=1)):
                raise ValueError(f"{printable_name(name)}: the name does not exist; the nearest is {near[0]}")
        return given


if TYPE_CHECKING:
    Filter = BaseModel
else:
    Filter = create_model(
        "DeadLetterFilter", __base__=_Known, **{each.name: _parameter(each) for each in fields(Selection)}
    )


def selection_of(given: Filter) -> Selection:
    """Converts a filter to a selection. Times without a zone are in UTC."""
    names = {each.name for each in fields(Selection)}
    return Selection(**{name: _plain(value) for name, value in given.model_dump(include=names).items()})


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return unix_seconds(value)
    return tuple(value) if isinstance(value, list) else value


router = APIRouter(prefix="/api/v1/dead-letters", route_class=JsonRoute, responses={409: _LINES[409]})
classes_router = APIRouter(prefix="/api/v1/dead-letter-classes", route_class=JsonRoute)


class _Listed(Filter):
    after: str | None = Field(None, max_length=500, description="Rows after this one: `next` of the previous page.")
    limit: int = Field(100, ge=1, le=1000, description="The maximum number of rows.")


class _Grouped(Filter):
    hours: int = Field(24, ge=0, le=720, description="Also count the dead letters of each of this many past hours.")


def _without_nulls(given: Any) -> Any:
    if isinstance(given, dict) and (nulls := [name for name, value in given.items() if value is None]):
        raise ValueError(f"{', '.join(map(str, nulls))}: null is not allowed; leave the parameter out")
    return given


class _Change(BaseModel):
    """The dead letters to change: a filter, and the number of dead letters that must match the filter."""

    model_config = ConfigDict(extra="forbid")

    filter: Annotated[Filter, BeforeValidator(_without_nulls)]
    count: int = Field(ge=0, le=2**63 - 1, strict=True, description="`count` of the groups of this filter.")


class _Sent(_Change):
    to: str = Field(min_length=1, max_length=249, description="A topic of the fleet's cluster; it must exist.")


@router.get("", summary="Dead letters that match a filter, the oldest first")
async def dead_letters(request: Request, given: Annotated[_Listed, Query()]) -> Response:
    """Returns a page. The search stops after a tenth of a second. So a page may be short or empty in mode `lake`, or
    if a filter has no index (`key`, `text`, `traceback`, tries, offsets). `next` continues the search."""
    page = _page(dead_letter_row, selection_of(given), given.limit, PAGE_SECONDS, given.after)
    rows, behind = await _read(request, page)
    return _json({"rows": rows, "next": behind})


@router.get("/groups", summary="Dead letters counted by error class and line of the handler")
async def groups(request: Request, given: Annotated[_Grouped, Query()]) -> Response:
    """Returns up to 500 groups, the largest first. In each group, `hours` has the number of new dead letters per hour,
    the current hour last. The answer's `count` and `groups` are the totals of matching dead letters and groups."""
    selection = selection_of(given)
    found = await _read(request, lambda store, progress: store.dead_groups(selection, given.hours, progress))
    count = sum(each.count for each in found)
    return _json({"rows": list(map(group_document, found[:500])), "count": count, "groups": len(found)})


@classes_router.get("", summary="How many dead letters there are of each error class")
async def classes(request: Request) -> Response:
    """Returns the error classes, the most frequent first, each with the time of its latest dead letter. If a handler
    gave its own text as reason, the class is `a reason from your code`, because the text may quote a message."""
    work = partial(_workbench(request).read, _by_class)
    rows, _ = await api_of(request).shared("dead-letter-classes", work)
    return _json({"rows": rows})


def _by_class(store: DeadLetterStore, progress: Progress) -> list[dict[str, Any]]:
    counts: Counter[str] = Counter()
    last: dict[str, float] = {}
    for each in store.dead_groups(Selection(), 0, progress):
        name = public_class(each.cause.error_class)
        counts[name] += each.count
        last[name] = max(each.last_died, last.get(name, 0.0))
    return [{"error_class": name, "count": n, "last_died": moment(last[name])} for name, n in counts.most_common()]


@router.get("/export", summary="Dead letters that match a filter, as JSON lines", responses=_LINES)
async def export(request: Request, given: Annotated[Filter, Query()]) -> Response:
    """Returns each dead letter with its message, one per line. If a field's bytes are not UTF-8, the field's name ends
    with `_base64`. If kctl cannot read all dead letters, the last line has only an `error`."""
    document = partial(dead_letter_document, decoder=_workbench(request).decoder)
    page = partial(_page, document, selection_of(given), EXPORT_ROWS, EXPORT_SECONDS)
    first = await _read(request, page(None))

    async def documents() -> AsyncIterator[dict[str, Any]]:
        rows, behind = first
        while True:
            for each in rows:
                yield each
            if behind is None:
                return
            rows, behind = await _workbench(request).read(page(behind))

    return _lines(documents())


@router.post(
    "/requeue", summary="Requeue the dead letters that match a filter, if their number is `count`", responses=_LINES
)
async def requeue(request: Request, given: _Change) -> Response:
    """Puts matching dead letters back into the queue, or in mode `lake` passes them to the transform again. Each line
    of the answer has `done`, the number requeued so far. The last line also has `complete`. After a failure, the last
    line has only an `error`. kctl stops when the caller disconnects."""
    return await _changed(request, "requeue", given)


@router.post(
    "/delete",
    summary="Permanently delete the dead letters that match a filter, if their number is `count`",
    responses=_LINES,
)
async def delete(request: Request, given: _Change) -> Response:
    """Returns lines like those of `requeue`."""
    return await _changed(request, "delete", given)


@router.post(
    "/send",
    summary="Send the dead letters that match a filter to a topic, if their number is `count`",
    responses=_LINES,
)
async def send(request: Request, given: _Sent) -> Response:
    """Sends each dead letter at least once, and deletes it when the brokers have acknowledged it. A repeated message
    has the first one's header `kctl-dead-letter`, so consumers can drop it. Returns lines like those of `requeue`."""
    return await _changed(request, "send", given, given.to)


@router.get(
    "/{id}",
    summary="One dead letter with its message",
    responses={404: {"model": Error, "description": "The id does not exist"}},
)
async def dead_letter(
    request: Request,
    id: str,  # noqa: A002 - the API's own word
    form: Annotated[
        Form, Query(alias="as", description="Bytes as text (base64 if they are not UTF-8), as JSON, or in hexadecimal.")
    ] = "text",
) -> Response:
    def document(store: DeadLetterStore, _: Progress) -> dict[str, Any] | None:
        found = store.find_dead(id)
        return None if found is None else dead_letter_document(found, form, _workbench(request).decoder)

    found = await _read(request, document)
    if found is None:
        raise HTTPException(
            HTTPStatus.NOT_FOUND,
            "no dead letter has this id: it was requeued or deleted, or has become a dead letter again with another id",
        )
    return _json(found)


def _page(
    row: Callable[[DeadLetter], dict[str, Any]], selection: Selection, limit: int, seconds: float, after: str | None
) -> Callable[[DeadLetterStore, Progress], tuple[list[dict[str, Any]], str | None]]:
    def read(store: DeadLetterStore, _: Progress) -> tuple[list[dict[str, Any]], str | None]:
        page = store.dead_page(selection, after, limit, seconds)
        return list(map(row, page.rows)), page.next

    return read


async def _read(request: Request, work: Callable[[DeadLetterStore, Progress], T]) -> T:
    return await _unless_gone(request, _workbench(request).read(work))


async def _unless_gone(request: Request, answer: Awaitable[T]) -> T:
    waiting, gone = asyncio.ensure_future(answer), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return waiting.result()
        raise HTTPException(499, "the caller has closed the connection")
    finally:
        waiting.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _workbench(request: Request) -> Workbench:
    workbench: Workbench = request.app.state.source.dead_letters
    return workbench


async def _changed(request: Request, verb: Verb, given: _Change, to: str = "") -> Response:
    from kctl_agent.storage.claim import CountChanged

    by = request.scope.get(CALLER_KEY, "")
    steps = _workbench(request).change(verb, selection_of(given.filter), given.count, by, to)
    try:
        first = await _unless_gone(request, anext(steps))
    except CountChanged as error:
        counts = {"expected": error.expected, "found": error.found}
        return JSONResponse(error_body(error.code, str(error), error.retriable) | counts, HTTPStatus.CONFLICT)

    async def all_steps() -> AsyncIterator[dict[str, Any]]:
        yield first
        async for step in steps:
            yield step

    return _lines(all_steps())


def _json(body: dict[str, Any]) -> JSONResponse:
    return JSONResponse(body, headers=_NO_STORE)


def _lines(documents: AsyncIterator[dict[str, Any]]) -> StreamingResponse:
    async def lines() -> AsyncIterator[str]:
        try:
            async for document in documents:
                yield json.dumps(document) + "\n"
        except (AgentError, KctlError) as error:
            yield json.dumps(error_body(error.code, str(error), error.retriable)) + "\n"

    return StreamingResponse(lines(), media_type=_JSON_LINES, headers=_NO_STORE)
