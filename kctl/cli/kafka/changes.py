"""Changes a cluster for `kctl kafka`: shows the plan, asks for confirmation, and audits the change.

Without `--execute`, the user must confirm a change at the terminal. If kctl cannot ask (`-o json`, `-o yaml`, or no
terminal), it prints the plan and exits with 2. With `--dry-run`, it prints the plan and exits with 0.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from kctl.audit import AuditedOperation, operation
from kctl.cli.kafka.cluster import audit_log
from kctl.cli.output import confirm
from kctl.cli.table import clean
from kctl.errors import UsageError
from kctl.kafka.client.connection import ClusterConnection


def check_choice(options: argparse.Namespace) -> None:
    """Rejects `--execute` together with `--dry-run`. Raises UsageError."""
    if options.execute and options.dry_run:
        raise UsageError("--execute and --dry-run contradict each other: give only one")


def change(
    options: argparse.Namespace,
    env: Mapping[str, str],
    connection: ClusterConnection,
    name: str,
    question: str,
    show: Callable[..., None],
    make: Callable[[], str],
    **params: Any,
) -> int:
    """Makes a change if the user agrees, and returns the exit code. `show(executed=False)` prints the plan,
    `show(executed=True)` the result. `make` makes and describes the change. The audit log gets `name` and `params`."""
    declined = _declined(options, lambda: show(executed=False), question)
    if declined is not None:
        return declined
    connection.deadline.renew()
    with audited(options, env, connection, name, **params) as running:
        running.text = make()
    if options.output == "table":
        sys.stderr.write(f"{clean(running.text)}\n")
    show(executed=True)
    return 0


def _declined(options: argparse.Namespace, show_plan: Callable[[], None], question: str) -> int | None:
    if options.execute:
        return None
    if options.dry_run or options.output != "table" or not sys.stdin.isatty():
        sys.stderr.write(f"nothing was changed: {'--dry-run' if options.dry_run else 'add --execute to do it'}\n")
        show_plan()
        return 0 if options.dry_run else UsageError.exit_code
    show_plan()
    confirm(question)
    return None


def audited(
    options: argparse.Namespace, env: Mapping[str, str], connection: ClusterConnection, name: str, **params: Any
) -> AbstractContextManager[AuditedOperation]:
    return operation(audit_log(options, env), f"kafka {name}", {"cluster": connection.access.named, **params})


def settings_of(texts: list[str] | None, option: str) -> dict[str, str]:
    """Parses texts of the form `KEY=VALUE`. Raises UsageError, also for a repeated key."""
    found: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"{option} takes KEY=VALUE, not `{text}`")
        if key in found:
            raise UsageError(f"{option} {key} is given twice")
        found[key] = value
    return found
