"""Kafka's own ConsumerGroupCommand, run from the locked jars and parsed: the offsets ours are compared with.

Each call starts a JVM (0.8 s on a quiet machine). The tool exits 0 even when it failed, and prints so in its output.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from kctl.errors import KctlError
from kctl.testing.jvm import kafka_command

__all__ = [
    "GroupMember",
    "GroupPartition",
    "GroupState",
    "consumer_group_command",
    "describe_group",
    "describe_members",
    "describe_state",
    "reset_offsets",
]

_TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """One row of `--describe`; what the tool prints as `-` is None."""

    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    consumer_id: str | None
    host: str | None
    client_id: str | None


@dataclass(frozen=True, slots=True)
class GroupState:
    """The row of `--describe --state`; `assignment_strategy` is None when the group has no members."""

    coordinator: str
    assignment_strategy: str | None
    state: str
    members: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One row of `--describe --members --verbose`; `assignment` as (topic, partition), sorted."""

    consumer_id: str
    host: str
    client_id: str
    assignment: tuple[tuple[str, int], ...]


def describe_group(bootstrap_servers: str, group: str) -> list[GroupPartition]:
    """The partitions with a committed offset or a member, sorted. Raises KctlError if there is no such group."""
    # Consumer and client ids may hold spaces; a topic never does, and a host begins with a slash.
    row = _row_pattern(group, r"(\S+)\s+(\d+)\s+(\d+|-)\s+(\d+|-)\s+(\d+|-)\s+(.+?)\s+(/\S*|-)\s+(.+)")
    found = []
    for line in _run(bootstrap_servers, "--group", group, "--describe", "--offsets").splitlines():
        if match := row.fullmatch(line.rstrip()):
            topic, partition, *offsets, consumer_id, host, client_id = match.groups()
            current, end, lag = map(_number, offsets)
            member = _text(consumer_id), _text(host), _text(client_id)
            found.append(GroupPartition(topic, int(partition), current, end, lag, *member))
    return sorted(found, key=lambda it: (it.topic, it.partition))


def describe_state(bootstrap_servers: str, group: str) -> GroupState:
    """State (`Stable`, `Empty`, `PreparingRebalance` …) and coordinator. Raises KctlError if there is no such group."""
    row = _row_pattern(group, r"(\S+)\s+\(\d+\)\s+(\S+)\s+(\S+)\s+(\d+)")
    output = _run(bootstrap_servers, "--group", group, "--describe", "--state")
    for line in output.splitlines():
        if match := row.fullmatch(line.rstrip()):
            coordinator, strategy, state, members = match.groups()
            return GroupState(coordinator, _text(strategy), state, int(members))
    raise KctlError(f"Kafka's tool printed no state of group {group}: {output.strip()}")


def describe_members(bootstrap_servers: str, group: str) -> list[GroupMember]:
    """The members with their partitions, sorted by id; may be empty. Raises KctlError if there is no such group."""
    row = _row_pattern(group, r"(.+?)\s+(/\S*)\s+(.+?)\s+(\d+)\s+(?:-|\d+)\s+(\S+)\s+(?:-|\d+)\s+\S+")
    found = []
    for line in _run(bootstrap_servers, "--group", group, "--describe", "--members", "--verbose").splitlines():
        if match := row.fullmatch(line.rstrip()):
            consumer_id, host, client_id, _, assignment = match.groups()
            found.append(GroupMember(consumer_id, host, client_id, _partitions(assignment)))
    return sorted(found, key=lambda it: it.consumer_id)


def reset_offsets(bootstrap_servers: str, group: str, topic: str, to: str | int) -> dict[int, int]:
    """Reset a topic's committed offsets to `"earliest"`, `"latest"` or an offset; returns the new ones by partition.

    `topic` may name partitions as the tool does: `topic:0,1`. The group must have no members.
    Raises KctlError with the tool's own reason.
    """
    target = ["--to-offset", str(to)] if isinstance(to, int) else [f"--to-{to}"]
    output = _run(
        bootstrap_servers, "--group", group, "--reset-offsets", "--topic", topic, *target, "--execute"
    )  # "Assignments can only be reset if the group … is inactive" comes with exit code 0
    row = _row_pattern(group, r"\S+\s+(\d+)\s+(\d+)")
    matches = [row.fullmatch(line.rstrip()) for line in output.splitlines()]
    return dict(sorted((int(match[1]), int(match[2])) for match in matches if match))


def consumer_group_command(bootstrap_servers: str, *arguments: str) -> list[str]:
    """The command line of Kafka's ConsumerGroupCommand. Raises JarsMissing and JavaMissing."""
    return kafka_command(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", bootstrap_servers, *arguments),
    )


def _run(bootstrap_servers: str, *arguments: str) -> str:
    command = consumer_group_command(bootstrap_servers, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    errors = [line for line in done.stdout.splitlines() if line.startswith("Error: ")]
    if errors or done.returncode != 0:
        reason = errors[0].removeprefix("Error: ") if errors else (done.stderr or done.stdout).strip()
        raise KctlError(f"Kafka's tool failed ({' '.join(arguments)}): {reason}")
    return done.stdout


def _row_pattern(group: str, columns: str) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(group)}\s+{columns}")


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


def _text(text: str) -> str | None:
    return None if text == "-" else text


def _partitions(assignment: str) -> tuple[tuple[str, int], ...]:
    """`a:0,1;b:2` as pairs; separators differ between Kafka versions, so each topic is found by its colon."""
    topics = re.findall(r"([\w.-]+):([\d,]+)", assignment)
    return tuple(sorted((topic, int(number)) for topic, numbers in topics for number in numbers.split(",") if number))
