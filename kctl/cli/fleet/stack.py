"""`kctl stack` prints stacks, and not only what has happened."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from kctl.cli.fleet.submit import follow, show, submit
from kctl.fleets import Fleet

__all__ = ["run"]


def run(find_fleet: Callable[[], Fleet], params: dict[str, Any], options: argparse.Namespace) -> None:
    fleet = find_fleet()
    operation = follow(fleet, submit(fleet, "stack", params, options.deadline))
    show(operation, options.output)
    if options.output == "table":
        for thread in operation["result"].get("threads", ()):
            sys.stdout.write(f"\n{thread['thread']}\n{thread['stack'].rstrip()}\n")
        for jvm in operation["result"].get("jvms", ()):
            sys.stdout.write(f"\nJVM, pid {jvm['pid']}\n{jvm.get('stack') or jvm.get('error')}\n")
