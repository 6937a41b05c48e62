"""Kafka's own tools, from the locked jars, with parsed output to compare with kctl's.

Each call starts a JVM (0.8 s on a quiet machine). The tool exits 0 even on failure, and prints the failure.
"""

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from kctl.errors import KctlError
from tests.servers.kafka_broker import kafka_command

Kind = Literal["classic", "share", "streams"]
_TIMEOUT_SECONDS = 60
_CONSUMER = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOPICS, OFFSETS = "org.apache.kafka.tools.TopicCommand", "org.apache.kafka.tools.GetOffsetShell"
_TOOLS = {
    "share": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "streams": "org.apache.kafka.tools.streams.StreamsGroupCommand",
}


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A row of `--describe`. A value that the tool prints as `-`, or not at all, is None. For a share group,
    `current_offset` is the start offset."""

    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    consumer_id: str | None
    host: str | None


@dataclass(frozen=True, slots=True)
class GroupState:
    coordinator_id: int
    state: str
    members: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A row of `--describe --members --verbose`. `assignment` has sorted pairs of topic and partition. For a streams
    group, they are active tasks (subtopology, partition), and `host` is the process."""

    consumer_id: str
    host: str
    client_id: str
    assignment: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    partitions: list[GroupPartition]
    state: GroupState
    members: list[GroupMember]


def describe_group(bootstrap_servers: str, group: str) -> list[GroupPartition]:
    """Partitions with a committed offset or a member, sorted. Raises KctlError if the group does not exist."""
    # Consumer and client ids may have spaces; a topic never does, and a host begins with a slash.
    row = _row_pattern(group, r"(\S+)\s+(\d+)\s+(\d+|-)\s+(\d+|-)\s+(\d+|-)\s+(.+?)\s+(/\S*|-)\s+.+")
    partitions = []
    for line in run(bootstrap_servers, "--group", group, "--describe", "--offsets").splitlines():
        if match := row.fullmatch(line.rstrip()):
            topic, partition, *offsets, consumer_id, host = match.groups()
            current, end, lag = map(_number, offsets)
            partitions.append(GroupPartition(topic, int(partition), current, end, lag, _text(consumer_id), _text(host)))
    return sorted(partitions, key=lambda it: (it.topic, it.partition))


def describe_state(bootstrap_servers: str, group: str) -> GroupState:
    """Raises KctlError if the group does not exist."""
    return _state(group, run(bootstrap_servers, "--group", group, "--describe", "--state"))


def _state(group: str, output: str) -> GroupState:
    row = _row_pattern(group, r"\S+\s+\((\d+)\)\s+(?:\S+\s+)?(\S+)\s+(\d+)")  # with or without a strategy
    for line in output.splitlines():
        if match := row.fullmatch(line.rstrip()):
            return GroupState(int(match[1]), match[2], int(match[3]))
    raise KctlError(f"Kafka's tool printed no state of group {group}: {output.strip()}")


def describe_members(bootstrap_servers: str, group: str) -> list[GroupMember]:
    """Returns members with partitions, sorted by id. Raises KctlError if the group does not exist."""
    row = _row_pattern(group, r"(.+?)\s+(/\S*)\s+(.+?)\s+(\d+)\s+(?:-|\d+)\s+(\S+)\s+(?:-|\d+)\s+\S+")
    members = []
    for line in run(bootstrap_servers, "--group", group, "--describe", "--members", "--verbose").splitlines():
        if match := row.fullmatch(line.rstrip()):
            consumer_id, host, client_id, _, assignment = match.groups()
            members.append(GroupMember(consumer_id, host, client_id, _partitions(assignment)))
    return sorted(members, key=lambda it: it.consumer_id)


def describe_all(bootstrap_servers: str, kind: Kind, group: str) -> DescribedGroup:
    """For streams groups, the tool prints only partitions of members' tasks. Raises KctlError if the group does not
    exist."""
    if kind == "classic":
        where = (bootstrap_servers, group)
        return DescribedGroup(describe_group(*where), describe_state(*where), describe_members(*where))
    questions = ("--offsets", "--verbose"), ("--state",), ("--members",)
    with ThreadPoolExecutor(len(questions)) as pool:
        outputs = pool.map(
            lambda words: run(bootstrap_servers, "--group", group, "--describe", *words, tool=_TOOLS[kind]), questions
        )
        offsets, state, members = outputs
    end = r"(?:(\d+|-)\s+)" if kind == "streams" else "()"
    partition = _row_pattern(group, rf"(\S+)\s+(\d+)\s+(\d+|-)\s+(\d+|-)\s+{end}(\d+|-)")
    member = _row_pattern(group, r"(\S+)\s+(\S+)\s+(\S+)\s+(.*)")
    rows = [match.groups() for line in offsets.splitlines() if (match := partition.fullmatch(line.rstrip()))]
    return DescribedGroup(
        sorted((_newer_partition(kind, *row) for row in rows), key=lambda it: (it.topic, it.partition)),
        _state(group, state),
        [
            GroupMember(match[1], match[2], match[3], _partitions(match[4]) or _tasks(match[4]))
            for line in members.splitlines()
            if (match := member.fullmatch(line.rstrip())) and match[1] not in ("CONSUMER-ID", "MEMBER")
        ],
    )


def _newer_partition(
    kind: str, topic: str, partition: str, first: str, second: str, end: str, lag: str
) -> GroupPartition:
    # The leader epoch comes before a share group's offset and after a streams group's.
    offset = second if kind == "share" else first
    numbers = _number(offset), _number(end or "-"), _number(lag)
    return GroupPartition(topic, int(partition), *numbers, consumer_id=None, host=None)


def reset_offsets(bootstrap_servers: str, group: str, topic: str, to: str | int) -> None:
    """Resets to `"earliest"`, `"latest"` or an offset. The group must have no members."""
    target = ["--to-offset", str(to)] if isinstance(to, int) else [f"--to-{to}"]
    run(bootstrap_servers, "--group", group, "--reset-offsets", "--topic", topic, *target, "--execute")


def consumer_group_command(bootstrap_servers: str, *arguments: str) -> list[str]:
    return kafka_command(_CONSUMER, "--bootstrap-server", bootstrap_servers, *arguments)


def run(bootstrap_servers: str, *arguments: str, tool: str = _CONSUMER) -> str:
    """Returns what the tool prints. Raises KctlError with its reason if it has failed."""
    command = kafka_command(tool, "--bootstrap-server", bootstrap_servers, *arguments)
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
    """Parses `a:0,1;b:2`. Separators differ between Kafka versions, so each topic is found by its colon."""
    topics = re.findall(r"([\w.-]+):([\d,]+)", assignment)
    return tuple(sorted((topic, int(number)) for topic, numbers in topics for number in numbers.split(",") if number))


def _tasks(assignments: str) -> tuple[tuple[str, int], ...]:
    """Parses `ACTIVE: 0:[0,1]; ...`."""
    subtopologies = re.findall(r"(\w+):\[([\d,]+)\]", assignments)
    return tuple(sorted((name, int(number)) for name, numbers in subtopologies for number in numbers.split(",")))
