"""docs/proof.md is what the tests promise: generated, and no acceptance test is missing from it."""

from __future__ import annotations

from tests import proof


def test_the_page_is_the_one_that_is_generated() -> None:
    written = (proof.ROOT / "docs" / "proof.md").read_text(encoding="utf-8")

    assert written == proof.page(), "python -m tests.proof > docs/proof.md"


def test_every_acceptance_test_shows_a_promise() -> None:
    paths = proof.ROOT.glob("tests/acceptance/test_*.py")

    assert [path for path in paths if not list(proof.promises(path))] == []
