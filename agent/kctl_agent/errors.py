"""The tree of errors at an agent's socket: each class has its wire `code` and whether a retry makes sense.

A message is one sentence that may leave the process: no traceback, no path (except `PathError`'s), and only sanitized
names from a peer.
"""

from __future__ import annotations

from typing import ClassVar


class AgentError(Exception):
    """An unexpected error; the log of the process has the traceback.

    `code` is for programs; `retriable`: the same request may succeed later.
    """

    code: ClassVar[str] = "internal"
    retriable: ClassVar[bool] = False


class WireError(AgentError):
    """The bytes are not frames of this protocol (docs/protocol.md)."""

    code = "bad_frame"


class FrameTooLarge(WireError):
    """A request is above 1 MiB, or a reply above 16 MiB."""

    code = "frame_too_large"


class BadPayload(WireError):
    """A frame is not UTF-8, not JSON, not an object, or contains NaN or Infinity."""

    code = "bad_payload"


class BrokenFrame(WireError):
    """The peer closed in the middle of a frame."""

    code = "broken_frame"


class BadRequest(AgentError):
    """A frame is not a request; the message names the field."""

    code = "bad_request"


class UnknownMethod(AgentError):
    """The method does not exist; `describe` lists all."""

    code = "unknown_method"


class BadParams(AgentError):
    """A parameter is unknown, missing or of the wrong type, or names something unknown; the message lists the known
    ones. The CLI exits with 2."""

    code = "bad_params"


class CommandFailed(AgentError):
    """The command failed in the process that answers; its log has the reason."""

    code = "command_failed"


class Busy(AgentError):
    """The limit of open connections is reached."""

    code = "busy"
    retriable = True


class NotReady(AgentError):
    """The worker has not published its first snapshot yet, or the master has not finished its first collection."""

    code = "not_ready"
    retriable = True


class PathError(AgentError):
    """A `run_dir` or socket path cannot or must not be used; the sentence has the reason and what to do."""

    code = "bad_path"


class AgentUnreachable(AgentError):
    """The socket is missing, has no listener, or the connection ended before the answer."""

    code = "unreachable"
    retriable = True


class AgentTimeout(AgentError):
    """The deadline passed without an answer."""

    code = "timeout"
    retriable = True


class NotPermitted(AgentError):
    """The caller is neither the same user nor root."""

    code = "not_permitted"


class StorageError(AgentError):
    """The storage failed, or does not support what was asked; the sentence has the reason."""

    code = "storage_error"


class RegistryUnusable(StorageError):
    """The schema registry does not answer, rejects the credentials, or has no schema from which columns can be made
    (docs/typed-messages.md)."""

    code = "registry_unusable"
    retriable = True


class Undecodable(AgentError):
    """A key or value cannot be decoded: its schema is unknown, or its bytes do not fit (docs/typed-messages.md)."""

    code = "undecodable"
