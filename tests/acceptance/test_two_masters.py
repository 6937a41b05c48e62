"""Two masters can have workers in one group with one storage file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, MakeFleet
from tests.acceptance.handlers import HANDLER, counted, is_poison
from tests.conftest import eventually

pytestmark = [pytest.mark.real, pytest.mark.long, pytest.mark.timeout(300)]

SINKERS = f'count = 1\nhandler = "{HANDLER}"\nmax_tries = 2\nretry_backoff_seconds = 0.05'


def test_two_masters_on_one_file_store_each_message_once(make_fleet: MakeFleet, short_dir: Path) -> None:
    shared = f'path = "{short_dir / "shared.sqlite"}"'
    one = make_fleet(partitions=2, storage=shared, sinkers=SINKERS)
    two = make_fleet(partitions=2, storage=shared, sinkers=SINKERS, beside=one)

    def share() -> bool:
        one.check()
        two.check()
        rows = (fleet.offsets() for fleet in (one, two))
        return [sum(row["worker"] == "worker-0" for row in of_one.values()) for of_one in rows] == [1, 1]

    one.start()
    two.start()
    eventually(share, START_SECONDS, "each has a partition")
    load = one.load(rate=1000)
    eventually(lambda: counted(one.ledger)[0] and counted(two.ledger)[0], SETTLE_SECONDS, "both handle messages")

    two.kill()
    eventually(lambda: one.owners() == {"worker-0"}, SETTLE_SECONDS, "the first has both partitions")
    two.start()
    eventually(share, START_SECONDS, "each has a partition again")
    one.finish(load)

    with closing(one.open_storage()) as storage:
        eventually(one.is_caught_up, SETTLE_SECONDS, "everything is stored and committed")
        eventually(lambda: storage.stats().pending + storage.stats().delayed == 0, SETTLE_SECONDS, "and handled")
        eventually(lambda: storage.stats().processing == 0, SETTLE_SECONDS, "and settled")
        dead_letters = [(dead_letter.block.partition, dead_letter.offset) for dead_letter in storage.dead()]
    handled = counted(one.ledger)[0] + counted(two.ledger)[0]
    produced = {(tp.partition, offset) for tp, count in one.sent.items() for offset in range(count)}
    assert set(handled.values()) == {1}
    assert set(handled) == {place for place in produced if not is_poison(place[1])}
    assert sorted(dead_letters) == sorted(produced - set(handled))
    eventually(
        lambda: [fleet.rpc("block_size")["dead"] for fleet in (one, two)] == [len(dead_letters)] * 2,
        SETTLE_SECONDS,
        "both report the same number of what they share",
    )
