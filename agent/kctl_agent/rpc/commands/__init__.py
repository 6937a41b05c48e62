"""The table of commands. A name from the wire is only a key of this table; it never selects a module, class or
attribute."""

from __future__ import annotations

from typing import Final

from kctl_agent.replies.describe import Param
from kctl_agent.rpc.commands.base import AgentCommand
from kctl_agent.rpc.commands.operations import operation_commands
from kctl_agent.rpc.commands.questions import ANSWERED, PING, ping_of, with_describe

__all__ = ["COMMANDS", "AgentCommand", "Param", "operation_commands", "ping_of", "with_describe"]

COMMANDS: Final[dict[str, AgentCommand]] = with_describe({PING.name: PING, **ANSWERED})
