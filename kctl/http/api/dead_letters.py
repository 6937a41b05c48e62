"""`/api/v1/dead-letters`: messages that were given up, found, shown, exported, put back and deleted.

All of it needs a token of http.token_file, reading too (`guard`): they are messages.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from kctl.dead_letters.documents import Form, dead_letter_document, dead_letter_row, group_document
from kctl.dead_letters.workbench import Verb, Workbench
from kctl.errors import KctlError
from kctl.http.api.dead_letter_filter import Filter, selection_of
from kctl.http.errors import Error, error_body
from kctl.http.guard import CALLER_KEY
from kctl.http.strict import JsonRoute
from kctl_agent.errors import AgentError

if TYPE_CHECKING:
    from kctl_agent.storage.base import DeadLetterPage, DeadLetterStore

__all__ = ["router"]

PAGE_SECONDS = 0.1
"""What an index does not answer is looked for so long; then the page is what was found, and `next` goes on."""
EXPORT_ROWS = 500
EXPORT_SECONDS = 1.0
_JSON_LINES = "application/jsonl"
_NO_STORE = {"cache-control": "no-store"}
_LINES: dict[int | str, dict[str, Any]] = {
    200: {"content": {_JSON_LINES: {}}, "description": "One JSON object a line"},
    409: {"model": Error, "description": "Refused; nothing was changed"},
}
_NONE: dict[int | str, dict[str, Any]] = {404: {"model": Error, "description": "There is none of this id"}}

router = APIRouter(prefix="/api/v1/dead-letters", route_class=JsonRoute, responses={409: _LINES[409]})


class _Listed(Filter):
    after: str | None = Field(None, max_length=500, description="Behind this one: `next` of the page before.")
    limit: int = Field(100, ge=1, le=1000, description="The most rows.")


class _Grouped(Filter):
    hours: int = Field(24, ge=0, le=720, description="Count those of the last so many hours too, each hour.")


def _without_nulls(given: Any) -> Any:
    """A part of a filter that is null would match everything, where its sender meant a value that JSON has not."""
    if isinstance(given, dict) and (nulls := [name for name, value in given.items() if value is None]):
        raise ValueError(f"{', '.join(map(str, nulls))}: null; leave it out")
    return given


class _Change(BaseModel):
    """What is to be changed: the filter, and how many were seen to match it."""

    model_config = ConfigDict(extra="forbid")

    filter: Annotated[Filter, BeforeValidator(_without_nulls)]
    count: int = Field(ge=0, le=2**63 - 1, strict=True, description="`count` of the groups of this filter.")


@router.get("", summary="Dead letters that match a filter, the oldest first")
async def listed(request: Request, given: Annotated[_Listed, Query()]) -> Response:
    """A page reads for a tenth of a second at most. With `key`, `text`, `traceback`, tries or offsets it may be short,
    or empty, and `next` goes on."""
    selection = selection_of(given)
    page = await _workbench(request).read(
        lambda store: store.dead_page(selection, given.after, given.limit, PAGE_SECONDS)
    )
    return _json({"rows": [dead_letter_row(each) for each in page.rows], "next": page.next})


@router.get("/groups", summary="Dead letters counted by error class and line of the handler")
async def groups(request: Request, given: Annotated[_Grouped, Query()]) -> Response:
    """`hours` of each are how many died in each of the last hours, the one that has just ended last; `count` is how
    many match in all."""
    selection = selection_of(given)
    found = await _workbench(request).read(lambda store: store.dead_groups(selection, given.hours))
    return _json({"rows": [group_document(each) for each in found], "count": sum(each.count for each in found)})


@router.get("/export", summary="Dead letters that match a filter, as JSON lines", responses=_LINES)
async def export(request: Request, given: Annotated[Filter, Query()]) -> Response:
    """Each with its message; bytes that are not UTF-8 under a name with `_base64`. A last line with an `error` is no
    dead letter: what follows could not be read."""
    selection, workbench = selection_of(given), _workbench(request)

    def page_behind(after: str | None) -> Callable[[DeadLetterStore], DeadLetterPage]:
        return lambda store: store.dead_page(selection, after, EXPORT_ROWS, EXPORT_SECONDS)

    async def documents() -> AsyncIterator[dict[str, Any]]:
        page = first
        while True:
            for each in page.rows:
                yield dead_letter_document(each)
            if page.next is None:
                return
            page = await workbench.read(page_behind(page.next))

    first = await workbench.read(page_behind(None))
    return _lines(documents())


@router.post("/requeue", summary="Put back what matches a filter, if it is as many as seen", responses=_LINES)
async def requeue(request: Request, given: _Change) -> Response:
    """To be handed out anew, or, of a table, to go through the transform once more. Each line is how many messages are
    `done`; the last has `complete`, or an `error`. It ends when the caller closes the connection."""
    return await _changed(request, "requeue", given)


@router.post(
    "/delete", summary="Delete what matches a filter for good, if it is as many as were seen", responses=_LINES
)
async def delete(request: Request, given: _Change) -> Response:
    """The lines are those of `requeue`."""
    return await _changed(request, "delete", given)


@router.get(
    "/{id}", summary="One dead letter with its message", responses={404: {"model": Error, "description": "None"}}
)
async def one(
    request: Request,
    id: str,  # noqa: A002 - the API's own word
    form: Annotated[
        Form, Query(alias="as", description="Bytes as text (base64 where they are none), as JSON, or in hexadecimal.")
    ] = "text",
) -> Response:
    found = await _workbench(request).read(lambda store: store.find_dead(id))
    if found is None:
        raise HTTPException(
            HTTPStatus.NOT_FOUND, "there is no dead letter of this id: it was put back, deleted, or died once more"
        )
    return _json(dead_letter_document(found, form))


def _workbench(request: Request) -> Workbench:
    workbench: Workbench = request.app.state.source.dead_letters
    return workbench


async def _changed(request: Request, verb: Verb, given: _Change) -> Response:
    from kctl_agent.storage.base import CountChanged  # with numpy

    by = request.scope.get(CALLER_KEY, "")
    steps = _workbench(request).change(verb, selection_of(given.filter), given.count, by)
    try:
        first = await anext(steps)
    except CountChanged as error:
        body = json.loads(error_body(error.code, str(error), error.retriable))
        return JSONResponse({**body, "expected": error.expected, "found": error.found}, HTTPStatus.CONFLICT)

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
            yield error_body(error.code, str(error), error.retriable).decode() + "\n"

    return StreamingResponse(lines(), media_type=_JSON_LINES, headers=_NO_STORE)
