"""The routes `/api/v1/operations`, which submit, list, show and cancel operations."""

from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from kctl.errors import OperationFailed, OperationUnknown
from kctl.http.errors import Error, JsonRoute, error_body
from kctl.http.guard import CALLER_KEY, HOLDER_KEY
from kctl.master.operations.base import Caller, Operation
from kctl.master.operations.fleet_operation import described
from kctl.master.operations.operation_log import OperationLog

_ERRORS = {"failed": OperationFailed, "unknown": OperationUnknown}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    202: {"description": "In progress: query it by its id"},
    404: {"model": Error, "description": "No operation has this id"},
    408: {"model": Error, "description": "The body did not arrive in time"},
    409: {"model": Error, "description": "The operation failed, or conflicts with another one"},
    413: {"model": Error, "description": "The body is too large"},
    415: {"model": Error, "description": "The body is not JSON, or has another content type"},
    504: {"model": Error, "description": "The outcome is unknown: the operation may continue, or no process answers"},
}
_OF_GIVING = {status: each for status, each in _RESPONSES.items() if status != 404}


class _Given(BaseModel):
    """An operation to submit, with its parameters (see docs/commands.md)."""

    model_config = ConfigDict(extra="forbid", strict=True)

    operation: str = Field(max_length=40, description="The name, such as pause, resume, seek, restart, drain, scale.")
    params: dict[str, Any] = Field(default_factory=dict)
    caller: Annotated[
        str, Field(max_length=200, pattern=r"^[ -~]*$", description="Who requested it, for the audit log.")
    ] = ""
    wait_seconds: Annotated[float, Field(ge=0, le=60, allow_inf_nan=False, description="Answer within this time.")] = (
        10.0
    )


router = APIRouter(prefix="/api/v1", route_class=JsonRoute)  # the guard admits changes only with a token


@router.post("/operations", summary="Submit an operation; the answer has its outcome", responses=_OF_GIVING)
async def give(given: _Given, request: Request) -> JSONResponse:
    """Submits an operation. 200 means done. 202 means in progress: query the operation by its `id`. 409 means failed
    or rejected: the operation makes no more changes. 504 means unknown: it may still run."""
    submitted = await _operations(request).submit(
        given.operation, given.params, _caller(request, given.caller), given.wait_seconds
    )
    return _answer(submitted)


@router.get("/operations", summary="The last operations, the newest first")
async def listed(request: Request) -> dict[str, Any]:
    return {"rows": [operation.to_row() for operation in _operations(request).all()]}


@router.get("/operations/types", summary="The operations that you can submit, with their parameters")
async def types(request: Request) -> dict[str, Any]:
    """Returns the operations. One with the parameter `dry_run` can report its changes without making them."""
    found = _operations(request).types.values()
    return {"rows": [described(each) for each in found if each.changes]}


@router.post(
    "/operations/{id}/cancel",
    summary="Cancel an operation in progress; its outcome reports what was done",
    responses=_RESPONSES,
)
async def cancel(id: str, request: Request) -> JSONResponse:  # noqa: A002 - the API's own word
    """Cancels an operation and returns its state. kctl undoes what it can. The last message names remaining changes."""
    return _answer(_operations(request).cancel(id, _caller(request)))


@router.get(
    "/operations/{id}",
    summary="The progress of an operation",
    responses={status: _RESPONSES[status] for status in (202, 404, 409, 504)},
)
async def one(id: str, request: Request) -> JSONResponse:  # noqa: A002 - the API's own word
    """Returns an operation. Without a token of http.token_file, the result of an operation that only reads is empty."""
    operations = _operations(request)
    found = operations.find(id)
    is_question = found.name in operations.types and not operations.types[found.name].changes
    return _answer(replace(found, result={}) if is_question and not request.scope.get(HOLDER_KEY) else found)


def _caller(request: Request, sent_for: str = "") -> Caller:
    return Caller(uid=None, via="http", token=request.scope.get(CALLER_KEY, ""), sent_for=sent_for)


def _operations(request: Request) -> OperationLog:
    operations: OperationLog = request.app.state.source.operations
    return operations


def _answer(operation: Operation) -> JSONResponse:
    status, body = HTTPStatus.OK, operation.to_json()
    if operation.state == "running":
        status = HTTPStatus.ACCEPTED
    elif operation.state in _ERRORS:
        error = _ERRORS[operation.state]
        status = HTTPStatus(error.http_status)
        body |= error_body(error.code, operation.text, error.retriable)
    return JSONResponse(body, status_code=status)
