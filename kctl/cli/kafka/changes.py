"""Changes of a cluster by `kctl kafka`: what would be done is shown, somebody confirms it, and it is audited.

As with Kafka's own tools nothing is changed without `--execute`, unless somebody at a terminal answers yes. For
programs (`-o json`, or no terminal) there is no question: the plan is printed, and that nothing was changed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from kctl.cli.confirm import confirmed
from kctl.cli.kafka.cluster import audit_log
from kctl.cli.table import clean
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.audit import AuditedOperation

__all__ = ["audited", "check_choice", "refusal", "report", "settings_of"]

_DECLINED = 1


def check_choice(options: argparse.Namespace) -> None:
    """Refuses options that contradict each other. Raises UsageError when `--execute` and `--dry-run` are both given."""
    if options.execute and options.dry_run:
        raise UsageError("--execute does it and --dry-run does not: give one of them")


def refusal(options: argparse.Namespace, show_plan: Callable[[], None], question: str) -> int | None:
    """Returns the exit code when nothing is to be changed, None when the change is to be made.

    Without `--execute` the plan is shown; then somebody at a terminal is asked, everybody else is shown how to go on.
    """
    if options.execute:
        return None
    if options.dry_run or options.output != "table" or not sys.stdin.isatty():
        sys.stderr.write(f"nothing was changed: {'--dry-run' if options.dry_run else 'add --execute to do it'}\n")
        show_plan()
        return 0
    show_plan()
    if confirmed(question):
        return None
    sys.stderr.write("nothing was changed\n")
    return _DECLINED


def report(options: argparse.Namespace, text: str) -> None:
    """Reports what has been done, beside the table, which is that of the plan; JSON and YAML have `executed`."""
    if options.output == "table":
        sys.stderr.write(f"{clean(text)}\n")


def audited(
    options: argparse.Namespace, env: Mapping[str, str], name: str, **params: Any
) -> AbstractContextManager[AuditedOperation]:
    """Writes a line into the audit log before and after the change; see `kctl.audit`."""
    from kctl.audit import operation

    return operation(audit_log(options, env), f"kafka {name}", params)


def settings_of(texts: list[str] | None, option: str) -> dict[str, str]:
    """Parses `KEY=VALUE` as they are given.

    Raises:
        UsageError: not of that form, or a key twice.
    """
    found: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"{option} takes KEY=VALUE, not `{text}`")
        if key in found:
            raise UsageError(f"{option} {key} is given twice")
        found[key] = value
    return found
