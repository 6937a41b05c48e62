"""`log_level`: changes a process's log level."""

from __future__ import annotations

import logging

from kctl.master.operations.fleet_operation import Caller, Context, Done, FleetOperation, Report
from kctl_agent.rpc.messages import printable_name
from kctl_agent.rpc.params import param

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class SetLogLevel(FleetOperation, rpc="log_level"):
    """Change the log level of a process until the process ends.

    kctl log-level worker-0 DEBUG
    """

    name: str = param("a worker, a sinker, `engine`, or `master`", is_argument=True)
    level: str = param("DEBUG, INFO, WARNING or ERROR", is_argument=True)

    def problem(self, _mark: str = "") -> str | None:
        if self.level.upper() in _LEVELS:
            return None
        return f"`{printable_name(self.level)}` is not a level: use {', '.join(_LEVELS)}"

    def touches(self, context: Context) -> frozenset[str]:
        if self.name != "master":
            context.supervisor.process(self.name)
        return frozenset()

    async def carry_out(self, context: Context, _caller: Caller, _report: Report) -> Done:
        level = self.level.upper()
        if self.name == "master":
            root = logging.getLogger()
            before = logging.getLevelName(root.level)
            root.setLevel(level)
        else:
            answer = await context.agents.operate(self.name, "log_level", {"level": level})
            before = str(answer.get("before"))
        return f"{self.name} logs {level} from now on; it was {before}", {"before": before, "level": level}
