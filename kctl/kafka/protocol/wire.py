"""A decoder of Kafka's protocol for people: bytes field by field, as kafka-python's own schemas read them.

No socket here, and no second protocol: each field is decoded by the object that kafka-python made of Kafka's JSON; all
that is added is where it began and ended.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from kctl.errors import UsageError

__all__ = [
    "Field",
    "Frame",
    "bytes_of_text",
    "frames",
    "message_class",
    "request_frame",
    "requests",
    "response_class",
    "response_frame",
]

_MODULES = (
    "kafka.protocol.admin",
    "kafka.protocol.consumer",
    "kafka.protocol.metadata",
    "kafka.protocol.producer",
    "kafka.protocol.sasl",
    "kctl.kafka.protocol.messages",
)
_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhi")
_DUMP_LINE = re.compile(r"[0-9a-fA-F]{4,8}(?::|  )\s*((?:[0-9a-fA-F]{2,4} ?)+)(?:\s.*)?")


@dataclass(frozen=True, slots=True)
class Field:
    """A field; `offset` and `length` in bytes of the frame; `depth` is how deep it is nested in the ones before it."""

    offset: int
    length: int
    depth: int
    name: str
    type: str
    value: Any


@dataclass(frozen=True, slots=True)
class Frame:
    """A request or a response; `error` when its body could not be read to the end."""

    kind: str
    name: str
    version: int
    correlation_id: int
    data: bytes
    fields: tuple[Field, ...]
    error: str | None = None


@cache
def requests() -> dict[str, Any]:
    """Returns kafka-python's request classes, and ours, by the name that Kafka's documentation has for them."""
    classes: dict[str, Any] = {}
    for module in map(import_module, _MODULES):
        for name, kind in vars(module).items():
            if name.endswith("Request") and isinstance(kind, type) and hasattr(kind, "API_KEY"):
                classes[name.removesuffix("Request")] = kind
    return dict(sorted(classes.items()))


def message_class(api_key: int, *, is_request: bool) -> tuple[str, Any] | None:
    """Returns the class for a number of the protocol; None where this client does not know it."""
    for name, kind in requests().items():
        if api_key == kind.API_KEY:
            return name, kind if is_request else response_class(kind)
    return None


def request_frame(data: bytes) -> Frame:
    """Decodes a frame that begins with its length, as a request.

    Raises:
        ValueError: it is none that this client knows.
    """
    key, version, correlation_id = _HEAD.unpack_from(data, 4)
    known = message_class(key, is_request=True)
    if known is None or not 0 <= version <= known[1].max_version:
        raise ValueError(f"api key {key}, version {version}")
    name, kind = known
    reader = _Reader(data, kind.flexible_version_q(version))
    reader.size()
    reader.request_header(kind)
    error = reader.body(kind, version)
    return Frame("request", name, version, correlation_id, data, tuple(reader.fields), error)


def response_frame(data: bytes, name: str, version: int) -> Frame:
    """Decodes a frame that begins with its length, as the response to a request of that name and version."""
    kind = response_class(requests()[name])
    reader = _Reader(data, kind.flexible_version_q(version))
    reader.size()
    correlation_id = reader.response_header(kind, version)
    error = reader.body(kind, version)
    return Frame("response", name, version, correlation_id, data, tuple(reader.fields), error)


def frames(data: bytes, answered: str | None = None, version: int | None = None) -> Iterator[Frame]:
    """Yields the frames in a stream of captured bytes, in their order.

    A frame whose first number is the correlation id of a request before it is its response. With `answered` all are
    responses to that request.

    Raises:
        UsageError: at the first that is neither, or is cut off.
    """
    pending: dict[int, tuple[str, int]] = {}
    position = 0
    while position < len(data):
        if len(data) - position < 12 and answered is None:
            raise UsageError(f"at byte {position}: {len(data) - position} bytes are no frame")
        size = _SIZE.unpack_from(data, position)[0]
        frame = data[position : position + 4 + size]
        if not 4 <= size <= len(data) - position - 4:
            raise UsageError(
                f"at byte {position}: a frame of {size} bytes is announced, {len(data) - position - 4} are there"
            )
        correlation_id = _SIZE.unpack_from(frame, 4)[0]
        if answered is not None:
            known = requests()[answered]
            yield response_frame(frame, answered, known.max_version if version is None else version)
        elif correlation_id in pending:
            yield response_frame(frame, *pending.pop(correlation_id))
        else:
            try:
                request = request_frame(frame)
            except (ValueError, struct.error) as error:
                raise UsageError(
                    f"at byte {position}: neither a known request ({error}) nor the response to one before it; name it "
                    "with --response and --version"
                ) from None
            pending[request.correlation_id] = (request.name, request.version)
            yield request
        position += 4 + size


def bytes_of_text(text: str) -> bytes:
    """Parses hex in the forms that tools print: plain, with colons or blanks, with offsets and characters beside it.

    Raises:
        UsageError: a line is none of these.
    """
    data = bytearray()
    for number, line in enumerate(text.splitlines(), 1):
        dump = _DUMP_LINE.fullmatch(line.strip())
        digits = re.sub(r"[\s:]", "", dump[1] if dump else line)
        try:
            data += bytes.fromhex(digits)
        except ValueError:
            raise UsageError(f"line {number} is not hex: `{line[:60]}`") from None
    return bytes(data)


class _Reader:
    """Reads one frame from front to back and notes each field."""

    def __init__(self, data: bytes, is_flexible: bool) -> None:
        self._data = io.BytesIO(data)
        self._end = len(data)
        self._is_flexible = is_flexible
        self.fields: list[Field] = []

    def size(self) -> None:
        self._note(0, 0, "length", "int32", _SIZE.unpack(self._data.read(4))[0])

    def request_header(self, kind: Any) -> None:
        header = kind.header_class
        layout = _layout(header)
        own = header._flexible_versions[0] if self._is_flexible else header._valid_versions[0]  # noqa: SLF001 - as in its decode
        names = {"request_api_key": "api_key", "request_api_version": "api_version"}
        for field in layout.untagged_fields(own):
            self._simple(field, own, 0, is_compact=False, name=names.get(field.name, field.name))
        if self._is_flexible:
            self._tags(layout, own, 0)

    def response_header(self, kind: Any, version: int) -> int:
        begin = self._data.tell()
        correlation_id: int = kind.parse_header(self._data, version=version).correlation_id
        end = self._data.tell()
        self.fields.append(Field(begin, 4, 0, "correlation_id", "int32", correlation_id))
        if end > begin + 4:
            self.fields.append(Field(begin + 4, end - begin - 4, 0, "tagged_fields", "tags", {}))
        return correlation_id

    def body(self, kind: Any, version: int) -> str | None:
        """Reads the rest; returns what is wrong with it, if something is."""
        try:
            self._struct(_layout(kind), version, 0)
        except Exception as error:  # bytes from anywhere: whatever a decoder makes of them, the fields before are good
            return f"byte {self._data.tell()}: {type(error).__name__}: {error}"
        rest = self._end - self._data.tell()
        return f"{rest} bytes are left over" if rest else None

    def _struct(self, layout: Any, version: int, depth: int) -> None:
        for field in layout.untagged_fields(version):
            if field.is_struct_array():
                self._array(field, version, depth)
            elif field.is_struct():
                begin = self._data.tell()
                if field.nullable_for_version_q(version) and self._data.read(1) == b"\xff":
                    self._note(begin, depth, field.name, field.type_str, None)
                    continue
                self._note(begin, depth, field.name, field.type_str, "")
                self._struct(field, version, depth + 1)
            else:
                self._simple(field, version, depth, is_compact=self._is_flexible)
        if self._is_flexible:
            self._tags(layout, version, depth)

    def _array(self, field: Any, version: int, depth: int) -> None:
        begin = self._data.tell()
        count = self._varint() - 1 if self._is_flexible else _SIZE.unpack(self._data.read(4))[0]
        self._note(
            begin,
            depth,
            field.name,
            f"[]{field.type_str}",
            None if count < 0 else f"{count} element{'s' * (count != 1)}",
        )
        for number in range(count):
            begin = self._data.tell()
            self._note(begin, depth + 1, f"[{number}]", field.type_str, "")
            self._struct(field, version, depth + 2)

    def _simple(self, field: Any, version: int, depth: int, *, is_compact: bool, name: str | None = None) -> None:
        begin = self._data.tell()
        value = field.decode(self._data, version=version, compact=is_compact, tagged=self._is_flexible)
        kind = f"[]{field.array_of.type_str}" if field.is_array() else field.type_str
        self._note(begin, depth, name or field.name, f"compact {kind}" if is_compact and _varies(kind) else kind, value)

    def _tags(self, layout: Any, version: int, depth: int) -> None:
        begin = self._data.tell()
        value = layout.tagged_fields(version).decode(self._data, version=version)
        self._note(begin, depth, "tagged_fields", "tags", value or {})

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._data.read(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def _note(self, begin: int, depth: int, name: str, kind: str, value: Any) -> None:
        self.fields.append(Field(begin, self._data.tell() - begin, depth, name, kind, value))


def _layout(kind: Any) -> Any:
    return kind._struct  # noqa: SLF001 - kafka-python has no other way to the fields of one version, in order


def _varies(kind: str) -> bool:
    return kind in ("string", "bytes", "records") or kind.startswith("[]")


def response_class(request: Any) -> Any:
    name = f"{request.__name__.removesuffix('Request')}Response"
    for module in map(import_module, _MODULES):
        if hasattr(module, name):
            return getattr(module, name)
    raise ValueError(f"there is no {name}")
