"""`/api/v1/logs/{process}` and `/api/v1/settings`: the end of a process's log, and the current settings.

Logs quote messages, so the guard requires a token of `http.token_file`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from fastapi import HTTPException, Query, Request
from fastapi.responses import JSONResponse

from kctl.daemon_threads import on_disk
from kctl.http.api.api import api_of
from kctl.http.api.listing import router
from kctl.http.errors import Error
from kctl.regular_files import open_regular
from kctl_agent.errors import NotReady
from kctl_agent.rpc.wire import JsonObject

_BYTES = 64 * 1024
"""The most log bytes in one answer; a rotation leaves this much in the file."""


@router.get(
    "/logs/{process:path}",
    summary="The end of a process's log, and then what was added",
    responses={404: {"model": Error, "description": "The master has started no such process"}},
)
async def log(
    request: Request,
    process: str,
    after: Annotated[int | None, Query(ge=0, description="`next` of the answer before.")] = None,
) -> JSONResponse:
    """`text` has complete lines; `is_continued` is false if it does not follow the previous answer, for example after a
    rotation."""
    api = api_of(request)
    supervised, process = api.latest().supervised, api.own_name(process)
    path = next((Path(each.log) for each in supervised if each.name == process), None)
    if path is None:
        raise HTTPException(404, "the master has started no process of this name")
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
