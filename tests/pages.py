"""Pages of docs/ with parts that are generated from code and tests: `make pages` writes them.

A part stands between `<!-- generated -->` and `<!-- end -->`; what is around it is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from tests import commands_page, configuration_page, errors_page, metrics_page, problems_page, proof, rpc_page

DOCS = Path(__file__).parents[1] / "docs"
PARTS: dict[str, Callable[[], Sequence[str]]] = {
    "command-line.md": lambda: [commands_page.reference()],
    "configuration.md": lambda: [configuration_page.reference()],
    "errors.md": errors_page.tables,
    "metrics.md": lambda: [metrics_page.reference()],
    "problems.md": problems_page.parts,
    "proof.md": lambda: ["\n\n".join(proof.sections())],
    "rpc.md": lambda: [rpc_page.reference()],
}
_PART = re.compile(r"(?<=<!-- generated -->\n).*?(?=<!-- end -->\n)", re.DOTALL)


def current(name: str) -> str:
    """The page with its parts as they are now."""
    parts = list(PARTS[name]())
    text = _PART.sub(lambda _: f"\n{parts.pop(0).strip()}\n\n", (DOCS / name).read_text(encoding="utf-8"))
    assert not parts, f"{name} has too few parts"
    return text


if __name__ == "__main__":
    for name in PARTS:
        (DOCS / name).write_text(current(name), encoding="utf-8")
