"""`[contexts.NAME]` of a configuration file: clusters that `kctl kafka` may ask beside the fleet's own.

A file with nothing but contexts will do: it describes no fleet, and `kctl kafka` needs none.
"""

from __future__ import annotations

from pathlib import Path

from kctl.config.clusters import ContextSection
from kctl.config.document import read_document
from kctl.config.findings import Findings

SECTION = "contexts"


def contexts(path: Path) -> dict[str, ContextSection]:
    """Reads the contexts of a configuration file, by name; nothing else of it is read. Raises ConfigError: no such
    file, a syntax error, unknown or missing keys, values that are not allowed."""
    found = Findings(path.absolute())
    found.take_document({SECTION: read_document(found.path).get(SECTION, {})})
    found.refuse()
    return found.named(SECTION, ContextSection)


def alone(path: Path) -> tuple[str, ...]:
    """Returns the names of the contexts of a file that has nothing else; none for any other file. Raises ConfigError:
    no such file, or a syntax error."""
    document = read_document(path)
    return tuple(document[SECTION]) if document.keys() == {SECTION} else ()
