"""`stack_dump`: the current stack of every Python thread."""

from __future__ import annotations

import sys
import threading
import traceback
from typing import Final

from kctl_agent.rpc.commands.base import AgentCommand
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import JsonObject

_MAX_FRAMES: Final = 60


def answer(_snapshot: Snapshot, _params: JsonObject, _now: float) -> JsonObject:
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


STACK_DUMP = AgentCommand("stack_dump", answer, "the stack of every thread", needs_snapshot=False)
