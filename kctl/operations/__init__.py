"""The operations on a fleet, one per file.

The command line imports these files too. To keep it fast, functions import what only the master needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kctl.master.operations.fleet_operation import FleetOperation

__all__ = ["COMMANDS", "operation", "operations"]

_CLASSES: Final = {
    "pause": "PauseReading",
    "resume": "ResumeReading",
    "seek": "SeekTopic",
    "restart": "RestartProcesses",
    "drain": "DrainProcess",
    "scale": "ScaleFleet",
    "reload": "ReloadConfig",
    "log_level": "SetLogLevel",
    "stack": "ShowStacks",
    "forget_host": "ForgetHost",
    "start": "StartProcess",
    "stop": "StopProcess",
}
COMMANDS: Final = {name.replace("_", "-"): name for name in _CLASSES if name not in ("start", "stop")}
"""Command -> operation. `kctl start` and `kctl stop`, which also act on a whole fleet, have commands of their own."""


def operation(name: str) -> type[FleetOperation]:
    found: type[FleetOperation] = getattr(import_module(f"kctl.operations.{name}"), _CLASSES[name])
    return found


def operations() -> dict[str, type[FleetOperation]]:
    """Returns all operations by name. Look up requested names only here, because `operation` imports a module before it
    checks the name."""
    return {name: operation(name) for name in _CLASSES}
