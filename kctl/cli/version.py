"""`kctl version`"""

from __future__ import annotations

import typer

from kctl import __version__

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("version")(_version)


def _version() -> None:
    """Print the version of kctl."""
    typer.echo(f"kctl {__version__}")
