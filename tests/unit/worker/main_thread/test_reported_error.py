"""Which error a worker shows, and for how long."""

from __future__ import annotations

import pytest

from kctl_agent.worker.main_thread.reported_error import GRACE_SECONDS, ReportedError


@pytest.fixture
def published() -> list[str | None]:
    return []


@pytest.fixture
def error(published: list[str | None]) -> ReportedError:
    return ReportedError(published.append)


def test_what_heals_within_the_grace_period_is_never_reported(
    error: ReportedError, published: list[str | None]
) -> None:
    error.tolerate("commit", "no coordinator", 100.0)
    error.tolerate("commit", "no coordinator", 100.0 + GRACE_SECONDS)
    error.resolve("commit")
    error.tolerate("commit", "no coordinator", 101.0 + GRACE_SECONDS)

    assert published == []


def test_what_lasts_is_reported_until_it_works_again(error: ReportedError, published: list[str | None]) -> None:
    error.tolerate("commit", "no coordinator", 100.0)
    error.tolerate("commit", "still no coordinator", 100.1 + GRACE_SECONDS)
    error.resolve("commit")

    assert published == ["still no coordinator", None]


def test_one_error_that_is_resolved_does_not_hide_another(error: ReportedError, published: list[str | None]) -> None:
    error.tolerate("poll", "no broker", 100.0)
    error.tolerate("poll", "no broker", 111.0)
    error.report("query", "the query ended")
    error.resolve("poll")
    assert published == ["no broker", "the query ended"]

    error.resolve("query")
    assert published[-1] is None
