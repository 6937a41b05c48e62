"""Converts dead letters and groups of dead letters to JSON."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Literal

from kctl.fields import bytes_field, moment
from kctl_agent.errors import Undecodable
from kctl_agent.schemas.plain import plain
from kctl_agent.storage.causes import sentence_of, traceback_in

if TYPE_CHECKING:
    from kctl_agent.message import Message
    from kctl_agent.schemas.decoding import Decoder
    from kctl_agent.storage.claim import DeadLetter, DeadLetterGroup

Form = Literal["text", "json", "hex"]
ROW_CHARACTERS = 200


def dead_letter_row(dead_letter: DeadLetter) -> dict[str, Any]:
    """Returns a dead letter as a row of a list, without value, headers and traceback."""
    messages = _messages(dead_letter)
    key = messages[0].key if messages else None
    return {
        **_head(dead_letter),
        "error": sentence_of(dead_letter.error)[:ROW_CHARACTERS],
        "damaged": not messages,
        "key": None if key is None else key[:ROW_CHARACTERS].decode(errors="replace"),
        "bytes": len(dead_letter.block.body),
    }


def dead_letter_document(
    dead_letter: DeadLetter, form: Form = "text", decoder: Decoder | None = None
) -> dict[str, Any]:
    """Returns a dead letter with its message. With `json`, bytes that are not JSON become text. Text that is not UTF-8
    becomes base64. Fields other than text have a suffix (`value_base64`). `decoder` adds the decoded key and value."""
    document = {
        **_head(dead_letter),
        "error": sentence_of(dead_letter.error),
        "traceback": traceback_in(dead_letter.error),
        "damaged": dead_letter.is_damaged,
    }
    messages = _messages(dead_letter)
    if not messages:
        body = base64.b64encode(dead_letter.block.body).decode()
        return document | {"damaged": True, "messages": dead_letter.block.count, "block_base64": body}
    message = messages[0]
    return document | {
        "timestamp": message.timestamp,
        **_field("key", message.key, form),
        **_field("value", message.value, form),
        **(decoder.document("key", message.key, message.headers) if decoder else {}),
        **(decoder.document("value", message.value, message.headers) if decoder else {}),
        "headers": [{"key": name, **_field("value", value, form)} for name, value in message.headers],
    }


def group_document(group: DeadLetterGroup) -> dict[str, Any]:
    return {
        "error_class": group.cause.error_class,
        "line": group.cause.line,
        "count": group.count,
        "first_died": moment(group.first_died),
        "last_died": moment(group.last_died),
        "newest": group.newest,
        "hours": list(group.hours),
    }


def _head(dead_letter: DeadLetter) -> dict[str, Any]:
    block, cause = dead_letter.block, dead_letter.cause
    return {
        "id": dead_letter.id,
        "topic": block.topic,
        "partition": block.partition,
        "offset": dead_letter.offset,
        "tries": dead_letter.tries,
        "died": moment(dead_letter.at),
        "error_class": cause.error_class,
        "line": cause.line,
    }


def _messages(dead_letter: DeadLetter) -> list[Message]:
    # needs numpy and pyarrow, which are installed if there are dead letters
    from kctl_agent.storage.block import BadBlock

    try:
        return dead_letter.messages()
    except BadBlock:
        return []


def _field(name: str, value: bytes | None, form: Form) -> dict[str, Any]:
    if value is not None and form == "hex":
        return {f"{name}_hex": value.hex()}
    if value is not None and form == "json":
        try:
            found = json.loads(value)
            json.dumps(found, allow_nan=False)  # fails for NaN and 1e999
            return {f"{name}_json": plain(found)}
        except (ValueError, RecursionError, Undecodable):
            pass
    return dict(bytes_field(name, value))
