"""Prints a result as a table, JSON or YAML, and asks before a change."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from kctl.cli.table import clean
from kctl.errors import KctlError, UsageError

if TYPE_CHECKING:
    from kctl.rpc.client import Reply

OUTPUTS = ("table", "json", "yaml")


def echo(text: str, *, is_error: bool = False) -> None:
    (sys.stderr if is_error else sys.stdout).write(f"{text}\n")


def whole(reply: Reply) -> dict[str, Any]:
    return {
        **reply.result,
        "complete": reply.complete,
        "asked": list(reply.asked),
        "answered": list(reply.answered),
        "failed": [failure.to_json() for failure in reply.failed],
        "stopped": list(reply.stopped),
        "age_seconds": reply.age_seconds,
        **({"verdict": json.loads(bytes(reply.verdict))} if reply.has_verdict else {}),
    }


def as_json(document: object, *, in_one_line: bool = False) -> str:
    return json.dumps(document, ensure_ascii=False, indent=None if in_one_line else 2)


def as_yaml(document: object) -> str:
    import yaml  # 15 ms that only this format pays

    text: str = yaml.safe_dump(document, allow_unicode=True, sort_keys=False, default_flow_style=False)
    return text.rstrip("\n")


def as_text(document: object, output: str) -> str:
    return as_yaml(document) if output == "yaml" else as_json(document)


def confirm(question: str) -> None:
    """Asks on stderr. Raises KctlError if the answer is not `y` or `yes`, and UsageError without a terminal."""
    if not sys.stdin.isatty():
        raise UsageError(f"{question} stdin is not a terminal, so it cannot be confirmed: use --yes")
    sys.stdout.flush()
    try:
        sys.stderr.write(f"{clean(question)} [y/N] ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        raise
    if not answer:  # Ctrl-D, which leaves the cursor where it is
        sys.stderr.write("\n")
    if answer.strip().lower() not in ("y", "yes"):
        raise KctlError("nothing was changed")
