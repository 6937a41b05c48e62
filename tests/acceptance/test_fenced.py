"""If workers of two fleets of one group have the same `group.instance.id`, the one that came first ends for good."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.conftest import eventually


def test_a_fenced_worker_ends_with_the_reason_and_is_not_started_again(make_fleet: MakeFleet, short_dir: Path) -> None:
    more = {"storage": f'path = "{short_dir / "shared.sqlite"}"', "kafka": "static_membership = true"}
    first = make_fleet(partitions=2, **more)
    second = make_fleet(partitions=2, beside=first, **more)
    first.start("worker-0")
    load = first.load(rate=500)

    second.start()
    status = eventually(lambda: given_up(first), START_SECONDS, "the first is given up")

    assert f"another member of the group {first.group} has joined with the group.instance.id" in status["last_error"]
    assert status["restarts"] == 0
    first.finish(load)
    second.sent = first.sent
    eventually(second.is_caught_up, SETTLE_SECONDS, "the second reads everything")
    second.stored_once()
    assert given_up(first), "it is still not started again"


def given_up(fleet: Fleet) -> dict[str, object] | None:
    fleet.check()
    rows = fleet.workers()
    status = rows.get("worker-0", {}).get("supervisor", {})
    return status if status.get("state") == "fatal" else None
