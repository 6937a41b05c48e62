"""Errors of agents and of requests to them. Each class has a `code` and defines whether a retry makes sense.

An error's message is one sentence that peers may see. It has no traceback. Names from a peer are sanitized.
"""

from typing import ClassVar


class AgentError(Exception):
    """An unexpected error. The log of the process has the traceback.

    Subclasses are expected errors. `code` is for programs. If `retriable` is true, a retry may succeed.
    """

    code: ClassVar[str] = "internal"
    retriable: ClassVar[bool] = False

    def __init_subclass__(cls, code: str | None = None, *, retriable: bool | None = None) -> None:
        cls.code = code or cls.code
        cls.retriable = cls.retriable if retriable is None else retriable


class WireError(AgentError, code="bad_frame"):
    """The bytes are not frames of this protocol (docs/protocol.md)."""


class FrameTooLarge(WireError, code="frame_too_large"):
    """A request is above 1 MiB, or a reply above 16 MiB."""


class BadPayload(WireError, code="bad_payload"):
    """A frame is not UTF-8, not JSON, not an object, or contains NaN or Infinity."""


class BrokenFrame(WireError, code="broken_frame"):
    """The peer closed the connection in the middle of a frame."""


class BadRequest(AgentError, code="bad_request"):
    """A frame is not a request. The message names the field."""


class UnknownMethod(AgentError, code="unknown_method"):
    """The method does not exist. `describe` lists all methods."""


class BadParams(AgentError, code="bad_params"):
    """A parameter is unknown, missing or of the wrong type, or names something that does not exist. The message lists
    what exists. The CLI exits with 2."""


class CommandFailed(AgentError, code="command_failed"):
    """The command failed in the process that answers. The log of that process has the reason."""


class Busy(AgentError, code="busy", retriable=True):
    """The limit of open connections is reached."""


class NotReady(AgentError, code="not_ready", retriable=True):
    """The worker has not published its first snapshot yet, or the master has not finished its first collection."""


class PathError(AgentError, code="bad_path"):
    """A `run_dir` or socket path cannot or must not be used. The message has the reason and what to do."""


class AgentUnreachable(AgentError, code="unreachable", retriable=True):
    """The socket is missing or has no listener, or the connection ended before the answer."""


class AgentTimeout(AgentError, code="timeout", retriable=True):
    """The deadline passed without an answer."""


class NotPermitted(AgentError, code="not_permitted"):
    """The caller is neither root nor the user of the process that answers."""


class StorageError(AgentError, code="storage_error"):
    """The storage failed, or does not support the request. The message has the reason."""


class RegistryUnusable(StorageError, code="registry_unusable", retriable=True):
    """The schema registry does not answer, rejects the credentials, or has a schema that kctl cannot turn into table
    columns (docs/typed-messages.md)."""


class Undecodable(AgentError, code="undecodable"):
    """A key or value has an unknown or unsupported schema, or does not fit its schema (docs/typed-messages.md)."""
