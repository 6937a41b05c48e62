"""`[contexts.NAME]` of a configuration file: clusters for `kctl kafka`, besides the fleet's own. A file with nothing
but contexts describes no fleet."""

from __future__ import annotations

from pathlib import Path

from kctl.config.clusters import ContextSection
from kctl.config.document import read_document
from kctl.config.findings import Findings

SECTION = "contexts"


def contexts(path: Path) -> dict[str, ContextSection]:
    """Reads nothing else of the file. Raises ConfigError."""
    found = Findings(path.absolute())
    found.take_document({SECTION: read_document(found.path).get(SECTION, {})})
    found.refuse()
    return found.named(SECTION, ContextSection)


def alone(path: Path) -> tuple[str, ...]:
    """Returns the contexts of a file that has nothing else. Raises ConfigError."""
    document = read_document(path)
    return tuple(document[SECTION]) if document.keys() == {SECTION} else ()
