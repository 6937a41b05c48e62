"""The command line: `entry` runs it, `app` has the tree of commands, `command` is how one is declared."""

from __future__ import annotations


def main() -> int:
    """The entry point `kctl`: runs the command line of this process and returns its exit code, or ends with it."""
    try:
        from kctl.cli.entry import run_process  # inside, so that Ctrl-C during the imports is silent too

        return run_process()
    except KeyboardInterrupt:
        return 130
