"""Errors at an agent's socket, as one tree: each class has its wire `code` and whether a retry makes sense.

A message is one sentence, fit for a reply: no traceback, no path (but `PathError`'s), and of a peer a sanitised name.
"""

from __future__ import annotations

from typing import ClassVar


class AgentError(Exception):
    """The root of an agent's errors. `code` is for programs; `retriable`: the same request may succeed later."""

    code: ClassVar[str] = "internal"
    retriable: ClassVar[bool] = False


class WireError(AgentError):
    """The bytes are not frames of ours; the connection they came on cannot be read any further."""

    code = "bad_frame"


class FrameTooLarge(WireError):
    """A frame's length is above the limit, judged from its four bytes alone; or a message of ours would not fit."""

    code = "frame_too_large"


class BadPayload(WireError):
    """A frame whose bytes are not UTF-8, not JSON, not an object, or hold a NaN or an Infinity."""

    code = "bad_payload"


class BrokenFrame(WireError):
    """The peer closed inside a frame. (Closing between two frames is a clean end and no error.)"""

    code = "broken_frame"


class BadRequest(AgentError):
    """A well-formed frame that is not a request; the message names the field."""

    code = "bad_request"


class UnknownMethod(AgentError):
    """The method of a request is not in the table."""

    code = "unknown_method"


class BadParams(AgentError):
    """A parameter that the command does not have, lacks, or has with another type; the message names it."""

    code = "bad_params"


class CommandFailed(AgentError):
    """A command failed; the cause is in the agent's own log."""

    code = "command_failed"


class Busy(AgentError):
    """The agent has as many connections as it may."""

    code = "busy"
    retriable = True


class NotReady(AgentError):
    """The worker has not published a snapshot yet."""

    code = "not_ready"
    retriable = True


class PathError(AgentError):
    """A run_dir or socket path that cannot or must not be used; the sentence names which, why and what to do."""

    code = "bad_path"


class AgentUnreachable(AgentError):
    """No socket file, or nobody listens on it."""

    code = "unreachable"
    retriable = True


class AgentTimeout(AgentError):
    """No answer came within the deadline."""

    code = "timeout"
    retriable = True


class NotPermitted(AgentError):
    """The peer is neither the same user nor root."""

    code = "not_permitted"


class StorageError(AgentError):
    """The storage refused or could not do its part; `kctl_agent.storage` has the particular ones."""

    code = "storage_error"
