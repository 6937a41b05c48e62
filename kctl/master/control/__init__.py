"""`master.sock`: `server` reads frames and writes replies, `router` finds who answers, `service` answers questions.

Operations go to the operation log of `kctl.master.operations`.
"""

from __future__ import annotations

from kctl.master.control.router import Router
from kctl.master.control.server import ControlServer
from kctl.master.control.service import MasterService

__all__ = ["ControlServer", "MasterService", "Router"]
