"""What can be done to a fleet: one file for each operation, with its parameters, what it touches and what it does.

A file is imported by the master, which carries the operation out, and by the command line, which makes a command of it;
so it imports little, and what only its work needs when it is carried out.
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
"""Of each operation, in the module of its name; in the order of the help page."""
COMMANDS: Final = {name.replace("_", "-"): name for name in _CLASSES if name not in ("start", "stop")}
"""Command to operation; `kctl start` and `kctl stop`, which are about a whole fleet too, are commands of their own."""


def operation(name: str) -> type[FleetOperation]:
    """The operation of this name."""
    found: type[FleetOperation] = getattr(import_module(f"kctl.operations.{name}"), _CLASSES[name])
    return found


def operations() -> dict[str, type[FleetOperation]]:
    """All of them: a name from the wire is looked up there and selects nothing else."""
    return {name: operation(name) for name in _CLASSES}
