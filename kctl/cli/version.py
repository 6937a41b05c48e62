"""`kctl version`"""

from __future__ import annotations

from kctl import __version__
from kctl.cli.output import echo
from kctl.cli.signature import command


def _version() -> None:
    """Print the version of kctl."""
    echo(f"kctl {__version__}")


COMMAND = command("version", _version)
