"""The tree of errors at an agent's socket: each class has its wire `code` and whether a retry makes sense.

A message is one sentence that may leave the process: no traceback, no path (except `PathError`'s), and only sanitized
names from a peer.
"""

from __future__ import annotations

from typing import ClassVar


class AgentError(Exception):
    """`code` is for programs; `retriable`: the same request may succeed later."""

    code: ClassVar[str] = "internal"
    retriable: ClassVar[bool] = False


class WireError(AgentError):
    """The bytes are not frames; the rest of the connection cannot be read."""

    code = "bad_frame"


class FrameTooLarge(WireError):
    """A frame's length is above the limit, known from its header alone; or our message would not fit."""

    code = "frame_too_large"


class BadPayload(WireError):
    """A frame that is not UTF-8, not a JSON object, or contains NaN or Infinity."""

    code = "bad_payload"


class BrokenFrame(WireError):
    """The peer closed inside a frame; closing between two frames is a clean end."""

    code = "broken_frame"


class BadRequest(AgentError):
    """A well-formed frame that is not a request; the message names the field."""

    code = "bad_request"


class UnknownMethod(AgentError):
    code = "unknown_method"


class BadParams(AgentError):
    """A parameter is unknown, missing or of the wrong type; the message names it."""

    code = "bad_params"


class CommandFailed(AgentError):
    """A command failed; the agent's log has the cause."""

    code = "command_failed"


class Busy(AgentError):
    code = "busy"
    retriable = True


class NotReady(AgentError):
    code = "not_ready"
    retriable = True


class PathError(AgentError):
    """A run_dir or socket path cannot or must not be used; the sentence names it, the reason and a remedy."""

    code = "bad_path"


class AgentUnreachable(AgentError):
    code = "unreachable"
    retriable = True


class AgentTimeout(AgentError):
    code = "timeout"
    retriable = True


class NotPermitted(AgentError):
    """The peer is neither the same user nor root."""

    code = "not_permitted"


class StorageError(AgentError):
    code = "storage_error"


class RegistryUnusable(StorageError):
    """The schema registry does not answer, or has no usable schema at the moment."""

    code = "registry_unusable"
    retriable = True


class Undecodable(AgentError):
    """A key or value cannot be decoded: its schema is unknown, or its bytes do not match the schema."""

    code = "undecodable"
