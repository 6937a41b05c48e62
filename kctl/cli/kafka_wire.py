"""`kctl kafka api-versions` and `kctl kafka wire`"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kctl.cli.kafka_cluster import connected
from kctl.cli.kafka_output import show, show_document, write
from kctl.cli.table import Column, cell, clip, render
from kctl.errors import KctlError, UsageError

if TYPE_CHECKING:
    from kctl.kafka.connection import Connection, Node
    from kctl.kafka.wire import Frame

__all__ = ["api_versions", "wire"]

_VERSIONS = (("broker", True), ("key", True), ("api", False), ("versions", False), ("ours", False), ("used", True))
_FIELDS = (Column("at", is_number=True), Column("bytes"), Column("field"), Column("type"), Column("value"))
_BYTES_SHOWN = 12
_VALUE_COLUMNS = 60
_DUMP_BYTES = 16
_READ_ONLY = (
    "ApiVersions",
    "Metadata",
    "FindCoordinator",
    "ListOffsets",
    "OffsetFetch",
    "DescribeGroups",
    "ListGroups",
)


def api_versions(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    with connected(options, env) as connection:
        from kafka.protocol.api_key import ApiKey

        from kctl.kafka.wire import message_class

        connection.open()
        nodes = [options.broker] if options.broker is not None else sorted(connection.brokers)
        if options.broker is not None and options.broker not in connection.brokers:
            raise UsageError(f"there is no broker {options.broker}; there are {sorted(connection.brokers)}")
        opened = connection.connections(nodes)
        rows: list[dict[str, Any]] = []
        problems = []
        for node, answer in opened.items():
            if isinstance(answer, KctlError):
                problems.append(answer)
                continue
            for key, (low, high) in sorted(answer.broker_version_data.api_versions.items()):
                known = message_class(key, is_request=True)
                ours = None if known is None else known[1].max_version
                used = None if ours is None or ours < low else min(ours, high)
                name = ApiKey(key).name if key in ApiKey._value2member_map_ else None
                rows.append(
                    {
                        "broker": node,
                        "key": key,
                        "api": name,
                        "versions": f"{low}-{high}",
                        "ours": None if ours is None else f"0-{ours}",
                        "used": used,
                    }
                )
    show(options, _VERSIONS, rows, problems)
    return 0


def wire(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    if options.decode is not None:
        return _decode(options)
    if options.request is None:
        raise UsageError(f"say which request: {', '.join(_READ_ONLY)}; or --decode FILE")
    if options.request not in _READ_ONLY:
        raise UsageError(f"`{options.request}` is not one of {', '.join(_READ_ONLY)}: only these are sent")
    with connected(options, env) as connection:
        from kctl.kafka.wire import request_frame, response_frame

        connection.open(options.topic or [])
        request, node = _request(connection, options)
        highest = type(request).max_version
        if options.version is not None:
            if options.version > highest:
                raise UsageError(f"this client knows {options.request} up to version {highest}, not {options.version}")
            request.API_VERSION = options.version
        sent, received, problem = connection.exchange(request, node)
    shown = [request_frame(sent)]
    if received:
        shown.append(response_frame(received, options.request, shown[0].version))
    _show(options, shown)
    if problem is not None:
        raise problem
    return 0


def _request(connection: Connection, options: argparse.Namespace) -> tuple[Any, Node | None]:
    """The request, and whom to ask: the leader, the coordinator, `--broker` or whoever answered first."""
    from kctl.kafka.wire import requests

    kind = requests()[options.request]
    node: Node | None = options.broker
    groups, topics = options.group or [], options.topic or []
    if options.request in ("FindCoordinator", "OffsetFetch", "DescribeGroups") and not groups:
        raise UsageError(f"{options.request} is about a group: -g GROUP")
    if options.request in ("OffsetFetch", "DescribeGroups") and node is None:
        found = connection.coordinators(groups[:1])[groups[0]]
        if isinstance(found, KctlError):
            raise found
        node = found
    if options.request == "ApiVersions":
        return kind(client_software_name="kctl", client_software_version="1"), node
    if options.request == "Metadata":
        names = [kind.MetadataRequestTopic(name=name) for name in topics] if topics else None
        return kind(topics=names, allow_auto_topic_creation=False), node
    if options.request == "FindCoordinator":
        old = options.version is not None and options.version < 4
        return (
            kind(key=groups[0], key_type=0) if old else kind(coordinator_keys=groups, key_type=0, min_version=4)
        ), node
    if options.request == "ListOffsets":
        return _list_offsets(connection, kind, topics, node)
    if options.request == "OffsetFetch":
        if options.version is not None and options.version < 8:
            return kind(group_id=groups[0], topics=None), node
        wanted = [kind.OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
        return kind(groups=wanted, min_version=8), node
    if options.request == "DescribeGroups":
        return kind(groups=groups), node
    return kind(states_filter=[], types_filter=[]), node


def _list_offsets(connection: Connection, kind: Any, topics: list[str], node: Node | None) -> tuple[Any, Node | None]:
    """The ends of the partitions that one broker leads, by default the leader of the first."""
    from kctl.kafka.layout import require, topics_of

    if not topics:
        raise UsageError("ListOffsets is about topics: -t TOPIC")
    known = topics_of(connection.metadata(topics))
    partitions = {name: require(known, name).partitions for name in topics}
    leader = node if node is not None else next((p.leader for each in partitions.values() for p in each), None)
    made = [
        kind.ListOffsetsTopic(
            name=name,
            partitions=[
                kind.ListOffsetsTopic.ListOffsetsPartition(
                    partition_index=each.partition, current_leader_epoch=-1, timestamp=-1
                )
                for each in led
                if each.leader == leader
            ],
        )
        for name, led in partitions.items()
    ]
    return kind(replica_id=-1, isolation_level=0, topics=made), leader


def _decode(options: argparse.Namespace) -> int:
    from kctl.kafka.wire import bytes_of_text, frames, requests

    if options.response is not None and options.response not in requests():
        raise UsageError(f"there is no request `{options.response}`; there are {', '.join(requests())}")
    try:
        text = sys.stdin.read() if options.decode == "-" else Path(options.decode).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{options.decode} cannot be read as text: {error}") from None
    found: list[Frame] = []
    problem: UsageError | None = None
    try:
        found.extend(frames(bytes_of_text(text), options.response, options.version))  # those before a bad one stay
    except UsageError as error:
        problem = error
    _show(options, found)
    if problem is not None:
        raise problem
    return 0


def _show(options: argparse.Namespace, shown: list[Frame]) -> None:
    if options.output == "table":
        write("\n\n".join("\n".join(_lines(frame, is_dumped=options.hex)) for frame in shown))
    else:
        show_document(options, {"frames": [_document(frame) for frame in shown]})


def _lines(frame: Frame, *, is_dumped: bool) -> list[str]:
    head = f"{frame.kind} {frame.name} version {frame.version}, {len(frame.data)} bytes"
    dump = [*_dump(frame.data), ""] if is_dumped else []
    rows = [
        (field.offset, _hex(frame.data, field), "  " * field.depth + field.name, field.type, _value(field.value))
        for field in frame.fields
    ]
    # A dash would be a value that is not known: here null is null.
    table = render(_FIELDS, [tuple(" " if part == "" else part for part in row) for row in rows])
    return [head, *dump, *table, *([f"not readable further: {frame.error}"] if frame.error else [])]


def _hex(data: bytes, field: Any) -> str:
    some = data[field.offset : field.offset + min(field.length, _BYTES_SHOWN)].hex(" ")
    return f"{some} …" if field.length > _BYTES_SHOWN else some


def _value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value)} bytes"
    if isinstance(value, str) and value:
        return clip(cell(value), _VALUE_COLUMNS)
    if isinstance(value, str):
        return value
    return clip(str(value), _VALUE_COLUMNS)


def _dump(data: bytes) -> list[str]:
    lines = []
    for start in range(0, len(data), _DUMP_BYTES):
        part = data[start : start + _DUMP_BYTES]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<{_DUMP_BYTES * 3 - 1}}  {letters}")
    return lines


def _document(frame: Frame) -> dict[str, Any]:
    return {
        "kind": frame.kind,
        "api": frame.name,
        "version": frame.version,
        "correlation_id": frame.correlation_id,
        "hex": frame.data.hex(),
        "fields": [
            {
                "offset": field.offset,
                "length": field.length,
                "depth": field.depth,
                "name": field.name,
                "type": field.type,
                "value": _plain(field.value),
            }
            for field in frame.fields
        ],
        "error": frame.error,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
