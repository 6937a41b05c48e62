"""`[contexts.NAME]` of a configuration file: clusters that `kctl kafka` may ask beside the fleet's own.

A file with nothing but contexts will do: it describes no fleet, and `kctl kafka` needs none.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from kctl.config.document import read_document
from kctl.config.sections import Context
from kctl.config.tables import named_tables

__all__ = ["FILES", "SECTION", "alone", "check", "contexts"]

SECTION = "contexts"
FILES = tuple(setting.name for setting in fields(Context) if setting.name.endswith("_file"))
"""Settings that are paths, relative to the folder of the configuration; empty: none."""


def contexts(path: Path) -> dict[str, Context]:
    """The contexts of a configuration file by name; nothing else of it is read.

    Raises:
        ConfigError: no such file, a syntax error, an unknown or missing key, a value that is not allowed.
    """
    path = path.absolute()
    return check(read_document(path).get(SECTION, {}), path)


def alone(path: Path) -> tuple[str, ...]:
    """The names of the contexts of a file that has nothing else; none for any other file.

    Raises:
        ConfigError: no such file, or a syntax error.
    """
    document = read_document(path)
    return tuple(document[SECTION]) if document.keys() == {SECTION} else ()


def check(table: object, path: Path) -> dict[str, Context]:
    """The contexts in `table`, which is what stands under `contexts` in the file `path`.

    Raises:
        ConfigError: as `contexts`.
    """
    return named_tables(SECTION, Context, table, path)
