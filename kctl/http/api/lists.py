"""The routes for logs and settings, and a route for each entry of `kctl_agent.replies.questions` that has a path."""

import os
from collections.abc import Callable, Coroutine, Iterator
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

from fastapi import HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse

from kctl.daemon_threads import on_disk
from kctl.http.api.answers import live_head
from kctl.http.api.api import Api, api_of
from kctl.http.api.listing import IfNoneMatch, ListParams, Lists, Local, OfHost, Rows, Strings, after_of, listed, router
from kctl.http.api.paging import Key
from kctl.http.errors import Error
from kctl.master.snapshot import FleetSnapshot
from kctl.ownership import open_regular
from kctl_agent.errors import NotReady
from kctl_agent.replies.encode import encoded
from kctl_agent.replies.questions import QUESTIONS, Question, named
from kctl_agent.rpc.wire import JsonObject


def _single(command: str) -> Callable[..., Coroutine[Any, Any, Response]]:
    async def answer(
        request: Request,
        live: Annotated[bool, Query(description="Ask the agents now.")] = False,
        local: Local = False,
        host: OfHost = None,
        if_none_match: IfNoneMatch = None,
    ) -> Response:
        api = api_of(request)
        snapshot, question = api.latest(), api.asked(is_live=live, is_local=local, host=host)
        if question is None and (same := api.unchanged(snapshot, if_none_match)):
            return same
        body = await _result(api, command, snapshot, question)
        return api.answer(snapshot, body, is_live=question is not None)

    return answer


def _list(command: str, declared: Question) -> Callable[..., Coroutine[Any, Any, Response]]:
    path, key = declared.path, Key.of(named(declared.sent), declared.rows, declared.key)

    async def read(api: Api, snapshot: FleetSnapshot, question: JsonObject | None) -> tuple[JsonObject, Rows]:
        result = await _result(api, command, snapshot, question)
        return result, sorted(result[declared.rows], key=key.values)

    async def answer(
        request: Request, lists: ListParams, after: str | None, if_none_match: str | None, **given: Any
    ) -> Response:
        filters = {field: given[name] for name, field in declared.filters.items()}
        return await listed(request, path, key, read, lists, after, if_none_match, filters, field=declared.rows)

    answer.__signature__ = Signature(list(_parameters(declared, key)))  # type: ignore[attr-defined]
    return answer


def _parameters(declared: Question, key: Key) -> Iterator[Parameter]:
    by_name = Parameter.POSITIONAL_OR_KEYWORD
    yield Parameter("request", by_name, annotation=Request)
    yield Parameter("lists", by_name, annotation=Lists)
    yield Parameter("after", by_name, default=None, annotation=Annotated[str | None, after_of(key)])
    for name in declared.filters:
        yield Parameter(name, by_name, default=None, annotation=Strings)
    yield Parameter("if_none_match", by_name, default=None, annotation=IfNoneMatch)


async def _result(api: Api, command: str, snapshot: FleetSnapshot, question: JsonObject | None) -> JsonObject:
    if question is not None:
        reduced = await api.ask(command, question)
        return {**encoded(reduced.result), **live_head(reduced)}
    reduced = snapshot.reduced(command)
    return {**encoded(reduced.result), **reduced.completeness(), "age_seconds": api.age_seconds(snapshot)}


for _name, _declared in QUESTIONS.items():
    if _declared.path:
        _answer = _list(_name, _declared) if _declared.key else _single(_name)
        router.add_api_route(f"/{_declared.path}", _answer, name=_declared.path, summary=_declared.path_summary)


_BYTES = 64 * 1024  # the most log bytes in one answer; a rotation leaves this much in the file


@router.get(
    "/logs/{process:path}",
    summary="The end of a process's log, and then new lines",
    responses={404: {"model": Error, "description": "The master has not started a process of this name"}},
)
async def log(
    request: Request,
    process: str,
    after: Annotated[int | None, Query(ge=0, description="`next` of the previous answer.")] = None,
) -> JSONResponse:
    """Returns complete lines of the log as `text`. If these lines do not directly follow the previous answer, for
    example after a rotation, `is_continued` is false."""
    api = api_of(request)
    supervised, process = api.latest().supervised, api.own_name(process)
    path = next((Path(each.log) for each in supervised if each.name == process), None)
    if path is None:
        raise HTTPException(404, "the master has not started a process of this name")
    try:
        answer = await on_disk(_read, path, after)
    except FileNotFoundError:
        answer = {"text": "", "next": 0, "is_continued": False}
    except OSError as error:
        raise NotReady(f"the log of {process} cannot be read: {error.strerror}") from None
    return JSONResponse(answer, headers={"cache-control": "no-store"})


@router.get("/settings", summary="Every setting with the value in use, without secrets")
async def settings(request: Request) -> JSONResponse:
    return JSONResponse({"settings": api_of(request).source.settings()}, headers={"cache-control": "no-store"})


def _read(path: Path, after: int | None) -> JsonObject:
    with open(open_regular(path, os.O_RDONLY), "rb") as file:
        size = file.seek(0, os.SEEK_END)
        is_continued = after is not None and size - _BYTES <= after <= size
        begin = after if after is not None and is_continued else max(size - _BYTES, 0)
        file.seek(begin)
        data = file.read(_BYTES)
    end = data.rfind(b"\n") + 1
    first = 0 if is_continued or begin == 0 else data.find(b"\n") + 1
    text = data[first:end].decode("utf-8", "replace")
    return {"text": text, "next": begin + end, "is_continued": is_continued}
