"""`log_level`: sets the log level of this process until it ends."""

from __future__ import annotations

import logging
from typing import Final

from kctl_agent.errors import BadParams
from kctl_agent.replies.describe import Param
from kctl_agent.rpc.commands.base import AgentCommand
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import JsonObject

_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")


def answer(_snapshot: Snapshot, params: JsonObject, _now: float) -> JsonObject:
    level = params["level"].upper()
    if level not in _LEVELS:
        raise BadParams(f"a log level is one of {', '.join(_LEVELS)}")
    root = logging.getLogger()
    before = logging.getLevelName(root.level)
    root.setLevel(level)
    return {"before": before, "level": level}


LOG_LEVEL = AgentCommand(
    "log_level",
    answer,
    "set the log level from now on",
    (Param("level", "string", ", ".join(_LEVELS), required=True),),
    changes=True,
    needs_snapshot=False,
)
