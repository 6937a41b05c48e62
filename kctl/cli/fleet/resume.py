"""`kctl resume`"""

from __future__ import annotations

import typer

from kctl.cli.fleet.scope import register_scoped

__all__ = ["register"]

_HELP = """Read again what was paused.

`--all` ends every pause. It gives up after 30 s, or `--deadline`.
"""


def register(app: typer.Typer) -> None:
    register_scoped(app, "resume", _HELP)
