"""For diagnosis: `log_level` sets the log level of this process until it ends, `stack_dump` returns its stacks."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from typing import Final

from kctl_agent.errors import BadParams
from kctl_agent.replies.describe import Param
from kctl_agent.rpc.commands.base import AgentCommand
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import JsonObject

_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
_MAX_FRAMES: Final = 60


def _set_log_level(_snapshot: Snapshot, params: JsonObject, _now: float) -> JsonObject:
    level = params["level"].upper()
    if level not in _LEVELS:
        raise BadParams(f"a log level is one of {', '.join(_LEVELS)}")
    root = logging.getLogger()
    before = logging.getLevelName(root.level)
    root.setLevel(level)
    return {"before": before, "level": level}


LOG_LEVEL = AgentCommand(
    "log_level",
    _set_log_level,
    "set the log level from now on",
    (Param("level", "string", ", ".join(_LEVELS), required=True),),
    changes=True,
    needs_snapshot=False,
)


def _stacks(_snapshot: Snapshot, _params: JsonObject, _now: float) -> JsonObject:
    """One text per thread, innermost call last, without values of variables, which may contain messages."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    threads = [
        {
            "thread": names.get(ident, f"unknown {ident}"),
            "stack": "".join(traceback.format_list(traceback.extract_stack(frame, limit=_MAX_FRAMES))),
        }
        for ident, frame in sys._current_frames().items()  # noqa: SLF001 - the only way to ask
    ]
    return {"threads": sorted(threads, key=lambda each: str(each["thread"]))}


STACK_DUMP = AgentCommand("stack_dump", _stacks, "the stack of every thread", needs_snapshot=False)
