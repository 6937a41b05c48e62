"""docs/proof.md is what the tests promise: generated, and no acceptance test is missing from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import proof

ACCEPTANCE = sorted(proof.ROOT.glob("tests/acceptance/test_*.py"))


def test_the_page_is_the_one_that_is_generated() -> None:
    written = (proof.ROOT / "docs" / "proof.md").read_text(encoding="utf-8")

    assert written == proof.page(), "python -m tests.proof > docs/proof.md"


@pytest.mark.parametrize("path", ACCEPTANCE, ids=lambda path: path.stem)
def test_every_acceptance_test_shows_a_promise(path: Path) -> None:
    assert list(proof.promises(path))
