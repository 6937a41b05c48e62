"""Frames of the Kafka protocol for an operator: fields with their bytes, or one document."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from kctl.cli.kafka.output import show_document, write
from kctl.cli.table import Column, cell, clip, render

if TYPE_CHECKING:
    from kctl.kafka.protocol.wire import Frame

__all__ = ["show_frames"]

_FIELDS = (Column("at", is_number=True), Column("bytes"), Column("field"), Column("type"), Column("value"))
_BYTES_SHOWN = 12
_VALUE_COLUMNS = 60
_DUMP_BYTES = 16


def show_frames(options: argparse.Namespace, shown: list[Frame]) -> None:
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
