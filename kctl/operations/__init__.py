"""The operations on a fleet, one per file.

Imports that only the master needs are inside functions, so that the command line loads these files fast.
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
    """Returns all operations by name. Look up names from requests in this dict: `operation` imports any module."""
    return {name: operation(name) for name in _CLASSES}
