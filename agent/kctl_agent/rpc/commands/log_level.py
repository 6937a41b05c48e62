"""`log_level`: how much this process writes into its log from now on, until it ends."""

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
    """The level before and the one from now on, of the root logger. Raises BadParams: not one of the four."""
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
    "write so much into the log from now on",
    (Param("level", "string", ", ".join(_LEVELS), required=True),),
    changes=True,
    needs_snapshot=False,
)
