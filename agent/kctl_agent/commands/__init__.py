"""The table of commands. A name from the wire is a key of it and never selects a module, class or attribute."""

from __future__ import annotations

from typing import Final

from kctl_agent.commands.base import Command, Param
from kctl_agent.commands.block_size import BLOCK_SIZE
from kctl_agent.commands.describe import with_describe
from kctl_agent.commands.kafka_lag import KAFKA_LAG
from kctl_agent.commands.member_leader import MEMBER_LEADER
from kctl_agent.commands.metadata_brokers import METADATA_BROKERS
from kctl_agent.commands.metadata_topics import METADATA_TOPICS
from kctl_agent.commands.offset_checker import OFFSET_CHECKER
from kctl_agent.commands.operations import operation_commands
from kctl_agent.commands.ping import PING, ping_of
from kctl_agent.commands.workers import WORKERS

__all__ = ["COMMANDS", "Command", "Param", "operation_commands", "ping_of", "with_describe"]

COMMANDS: Final[dict[str, Command]] = with_describe(
    {
        "ping": PING,
        "kafka_lag": KAFKA_LAG,
        "offset_checker": OFFSET_CHECKER,
        "block_size": BLOCK_SIZE,
        "member_leader": MEMBER_LEADER,
        "metadata_brokers": METADATA_BROKERS,
        "metadata_topics": METADATA_TOPICS,
        "workers": WORKERS,
    }
)
