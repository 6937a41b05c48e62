"""Real sinkers: what they handle, what a kill leaves, and several of them on one storage."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kctl.config.load import load
from kctl.master.launch import sinker_settings
from kctl_agent.message import Message
from kctl_agent.storage.block import pack
from kctl_agent.storage.chunk import Chunk, StoredOffset
from kctl_agent.storage.file import FileStorage
from kctl_agent.storage.kinds import open_storage
from kctl_agent.storage.redis import RedisStorage
from tests.conformance.given import fill, is_empty, put
from tests.conftest import eventually
from tests.integration.sinker_handlers import POISON, ledger
from tests.integration.sinkers import SinkerProcess, place, sinker, storage_settings
from tests.servers.redis_server import RedisServer, require_redis

__all__ = ["place", "sinker"]

EXAMPLES = Path(__file__).parents[2] / "examples"

Start = Callable[..., SinkerProcess]


@pytest.fixture
def storage(place: Path) -> FileStorage:
    storage = FileStorage(place / "s.sqlite")
    storage.prepare()
    return storage


def handled(partition: int = 0) -> Counter[int]:
    return Counter(offset for offset, where in ledger() if where == partition)


def test_a_handler_is_opened_given_every_message_once_and_closed(sinker: Start, storage: FileStorage) -> None:
    fill(storage, 1200)
    one = sinker("Opened")
    eventually(lambda: is_empty(storage))

    eventually(lambda: one.stats.get("handled") == 1200)
    assert one.leave() == 0
    assert "the master is gone; stopping" in one.log.read_text()
    assert [offset for offset, _ in ledger()] == [-1, *range(1200), -2]


@pytest.mark.shows("a poison message costs the others at most one extra delivery")
def test_a_message_that_fails_its_batch_costs_the_others_one_delivery(sinker: Start, storage: FileStorage) -> None:
    fill(storage, 500)
    one = sinker("chokes")
    eventually(lambda: is_empty(storage))

    (dead_letter,) = storage.dead()
    assert (dead_letter.offset, dead_letter.tries) == (POISON, 3)
    first, *trace = dead_letter.error.splitlines()
    assert first == (
        "the handler sinker_handlers:chokes raised ValueError: offset 7 cannot be read on t-0 offset 7 (1 message)"
    )
    assert trace[0] == "Traceback (most recent call last):"
    assert trace[-2:] == [
        '    raise ValueError(f"offset {POISON} cannot be read")',
        "ValueError: offset 7 cannot be read",
    ]
    deliveries = handled()
    assert deliveries.pop(POISON) == 3
    assert set(deliveries.values()) == {2}
    names = ("handled", "dead", "in_flight")
    eventually(lambda: tuple(map(one.stats.get, names)) == (499, 1, 0), 20, "its stats count them")
    logged = one.log.read_text()
    assert "t-0 offsets 0..499 (500 messages)" in logged
    assert logged.count("Traceback (most recent call last):") == 1, "the same place, within a minute"
    assert logged.count("cannot be read on t-0 offset 7 (1 message)") == 2


def test_a_handler_that_cannot_begin_leaves_traceback_and_reason(sinker: Start, storage: FileStorage) -> None:
    one = sinker("sinker_handlers:CannotOpen")

    assert one.process.wait(60) == 1
    assert "    Traceback (most recent call last):" in one.log.read_text()
    assert one.last_line.endswith("no route")


@pytest.mark.shows("a SIGKILL inside the handler loses nothing; only messages in flight are handled twice")
@pytest.mark.parametrize(("handler", "code"), [("dies", -signal.SIGKILL), ("hangs", 1)])
def test_fatal_messages_cost_others_one_delivery(handler: str, code: int, sinker: Start, storage: FileStorage) -> None:
    fill(storage, 500)
    codes: list[int] = []
    while not is_empty(storage):
        one = sinker(handler, handler_timeout_seconds=0.6)
        if len(codes) == 3:
            eventually(lambda: is_empty(storage))
        codes.append(one.leave() if len(codes) == 3 else one.process.wait(60))

    assert codes == [code, code, code, 0]
    (dead_letter,) = storage.dead()
    assert dead_letter.offset == POISON
    reason = "the sinker died while it handled only this message" if handler == "dies" else "not return within 0.6 s"
    assert reason in dead_letter.error
    deliveries = handled()
    assert deliveries.pop(POISON) == 3
    assert set(deliveries.values()) == {2}


@pytest.fixture(params=["file", "redis"])
def own_storage(request: pytest.FixtureRequest, place: Path) -> Iterator[dict[str, Any]]:
    if request.param == "file":
        yield storage_settings(place, block_messages=20)
        return
    require_redis()
    with RedisServer(place / "r") as server:
        yield storage_settings(place, block_messages=20, mode="redis", url=server.url, namespace="g")


@pytest.mark.shows("two sinkers of one name, or clocks set back by an hour, double and block nothing")
def test_a_second_sinker_of_one_name_is_turned_away(place: Path, sinker: Start, storage: FileStorage) -> None:
    fill(storage, 10)
    first = sinker("waits_for_gate")
    eventually(lambda: len(ledger()) == 10)

    second = sinker("counts")
    assert second.process.wait(60) == 1
    assert "sinker-0" in second.last_line
    assert storage.stats().processing == 10, "it released what the first holds"
    (place / "gate").write_bytes(b"x")

    eventually(lambda: first.stats.get("handled") == 10)
    assert first.leave() == 0
    assert len(ledger()) == 10


def test_clocks_set_back_an_hour_leave_nothing_stuck_or_twice(own_storage: dict[str, Any], sinker: Start) -> None:
    """The storage's clock goes back, too. It has then seen a later time before."""
    with closing(open_storage(own_storage)) as storage:
        storage.prepare()
        fill(storage, 400)
        sinkers = [
            sinker("sets_the_clock_back", name, storage=own_storage, batch_size=20, lease_seconds=2.0)
            for name in ("sinker-0", "sinker-1")
        ]
        if isinstance(storage, RedisStorage):
            eventually(lambda: len(ledger()) > 100)
            storage._session.client.hincrby(storage._session.prefix + "clock", "machine", 3_600_000)
        eventually(lambda: is_empty(storage), what="everything is handled")
        assert [one.leave() for one in sinkers] == [0, 0]
        assert list(storage.dead()) == []

    assert Counter(ledger()) == {(offset, 0): 2 for offset in range(400)}


@pytest.mark.shows("a settle after its lease expired changes nothing and is reported")
def test_a_late_settle_after_a_lost_lease_changes_nothing(sinker: Start, storage: FileStorage, place: Path) -> None:
    fill(storage, 10)
    slow = sinker("waits_for_gate", lease_seconds=0.5)
    eventually(lambda: len(ledger()) == 10)

    slow.process.send_signal(signal.SIGSTOP)
    quick = sinker("counts", "sinker-1")
    eventually(lambda: is_empty(storage))
    slow.process.send_signal(signal.SIGCONT)
    (place / "gate").write_bytes(b"x")

    stats = eventually(lambda: (found := slow.stats).get("lost") and found["events"] and found)
    assert (stats["handled"], stats["lost"]) == (0, 10)
    assert [event["kind"] for event in stats["events"]] == ["lease_lost"]
    assert set(handled().values()) == {2}
    assert (slow.leave(), quick.leave()) == (0, 0)
    assert storage.stats().dead == 0


@pytest.mark.shows("a graceful stop finishes the batch in flight and returns the rest")
def test_a_sinker_that_is_stopped_finishes_its_batch_and_gives_back_the_rest(sinker: Start, place: Path) -> None:
    storage = FileStorage(place / "s.sqlite", block_messages=10)
    storage.prepare()
    fill(storage, 50)
    one = sinker("waits_for_gate", batch_size=10)
    eventually(lambda: len(ledger()) == 10)

    one.process.send_signal(signal.SIGTERM)
    (place / "gate").write_bytes(b"x")

    assert one.process.wait(60) == 0
    assert one.last_line.endswith("left")
    assert [offset for offset, _ in ledger()] == list(range(10))
    assert (storage.stats().pending, storage.stats().processing) == (40, 0)
    assert [claim.tries for claim in storage.claim("a", 40, 30)] == [0] * 4


@pytest.mark.shows("with `ordered`, messages of a partition wait for its failed message")
def test_in_order_nothing_comes_before_a_failed_message(sinker: Start, storage: FileStorage, place: Path) -> None:
    small = FileStorage(place / "s.sqlite", block_messages=4)
    fill(small, 40)
    fill(small, 40, 1)
    one = sinker("fails_on_poison", ordered=True)
    two = sinker("fails_on_poison", "sinker-1", ordered=True)
    eventually(lambda: is_empty(storage))

    assert (one.leave(), two.leave()) == (0, 0)
    for partition in (0, 1):
        last = {offset: i for i, (offset, where) in enumerate(ledger()) if where == partition}
        assert [offset for offset, _ in sorted(last.items(), key=lambda item: item[1])] == list(range(40))
    assert not list(storage.dead())


@pytest.mark.shows("the example's configuration and handler run")
def test_the_example_is_a_configuration_and_a_handler_that_run(sinker: Start, storage: FileStorage) -> None:
    config = load(EXAMPLES / "kctl.toml", {})
    settings = sinker_settings(config, "sinker-0")
    values = [b'{"amount": 12.5}', b"no order", b'{"amount": 1}']
    messages = [Message("orders", 0, offset, None, value, 0) for offset, value in enumerate(values)]
    storage.init_offsets([StoredOffset("orders", 0, None, 0)])
    put(storage, Chunk("orders", 0, None, 0, 3, 1, pack(messages)))

    names = ("handler", "import_dir", "batch_size", "batch_wait_seconds", "ordered")
    one = sinker(**{name: settings[name] for name in names}, max_tries=2)
    eventually(lambda: is_empty(storage))

    assert one.leave() == 0
    assert "orders-0 offset 0: 12.50" in one.log.read_text()
    (dead_letter,) = storage.dead()
    assert (dead_letter.offset, dead_letter.error.splitlines()[0]) == (
        1,
        "JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    )
