import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from kctl.fields import moment
from kctl.hosts.hosts import AgentReply, HostReplies, Hosts
from kctl.hosts.membership import Seen
from kctl.hosts.roster import Gone, Host, Refused, Roster
from kctl.hosts.status import joined_status, joined_verdict
from kctl.master.reduction import COMMANDS
from kctl.reduce.base import Answer, BrokerSnapshot
from kctl.rows.verdict import Finding, Level, Verdict
from kctl.rows.workers import StatusAnswer, WorkerRow, WorkerStatus
from kctl.rpc.fan_out import Failed, FanOut
from kctl_agent.errors import AgentError, AgentUnreachable, BadRequest
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.replies.encode import encoded

FLEET = ("main", "billing")
A, B, C = (Host(name, f"https://{name}:9750", 1) for name in "abc")


@dataclass
class World:
    seen: Seen = field(default_factory=lambda: Seen(Roster("a", 1, (A, B, C)), 100.0))
    now: float = 100.0
    bodies: dict[str, bytes | AgentError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        network: Any = self
        self.hosts = Hosts(network, network, A, FLEET, lambda: self.now, lambda: 1_000_000.0 + self.now)

    async def get(self, url: str, _path: str, _seconds: float) -> bytes:
        body = self.bodies[url]
        if isinstance(body, AgentError):
            raise body
        return body

    async def keep(self, _urls: Collection[str]) -> None:
        pass

    def answers(
        self, host: Host, *results: Any, by: Host | None = None, fleet: tuple[str, str] = FLEET, **more: Any
    ) -> None:
        by = by or host
        more.setdefault("status", Raw(b'{"rows": []}'))
        agents = tuple(
            AgentReply(f"worker-{number}", 0.5, Raw(msgspec.json.encode(encoded(result))))
            for number, result in enumerate(results)
        )
        self.bodies[host.url] = msgspec.json.encode(HostReplies(*fleet, by.name, by.incarnation, agents, **more))

    def ask(self, command: str = "workers", **options: Any) -> Any:
        return asyncio.run(self.hosts.ask(command, 1.0, **options))

    def states(self) -> dict[str, str]:
        return {row.name: row.state for row in self.hosts.answer().rows}


def well() -> World:
    world = World()
    for host in (B, C):
        world.answers(host, WorkerRow("worker-0", "worker"))
    return world


def test_a_silent_host_is_silent_no_more_when_it_has_joined_again_and_its_next_silence_is_a_new_one() -> None:
    world = well()
    world.ask()
    world.bodies[B.url] = AgentUnreachable("connection refused")
    world.now = 101.0
    kept = world.ask().joined(FanOut([], []), "a").answers
    assert {each.sender: (each.age_seconds, each.kept_seconds) for each in kept} == {
        "c/worker-0": (0.5, 0.0),
        "b/worker-0": (1.5, 1.0),
    }
    for joined_at, state in ((99.0, "silent"), (102.0, "present")):
        world.now = 105.0
        world.seen = Seen(world.seen.roster, 105.0, joined_at={B.key: joined_at})
        assert world.states()["b"] == state

    world.ask()
    [row] = [each for each in world.hosts.answer().rows if each.name == "b"]
    assert (row.state, row.since) == ("silent", 1_000_105.0)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"fleet": ("main", "other")}, "a master of another fleet answers at https://b:9750"),
        ({"by": C}, "c answers at https://b:9750, but is not the master that joined the group"),
        ({"by": Host("b", B.url, 2)}, "b answers at https://b:9750, but is not the master that joined the group"),
    ],
)
def test_another_master_behind_an_address_is_not_taken_for_the_host(answer: dict[str, Any], message: str) -> None:
    world = well()
    world.answers(B, **answer)

    outcome = world.ask()

    assert [each.host for each, _ in outcome.replies] == ["c"]
    assert message in outcome.failed[0].message


UNKNOWN = BadRequest("it answered with the HTTP status 404")


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff", b"[1]", b'{"cluster": 1}', UNKNOWN])
def test_what_is_no_answer_is_a_failure_of_that_host_and_no_silence(body: bytes | AgentError) -> None:
    world = well()
    world.bodies[B.url] = body
    world.answers(C, status=Raw(msgspec.json.encode(encoded(status("w", Level.OK, "-")))))

    outcome = world.ask("status")

    code = "bad_request" if body is UNKNOWN else "bad_result"
    assert [(each.sender, each.code) for each in outcome.failed] == [("b", code)]
    assert [each.host for each, _ in outcome.replies] == ["c"]
    assert joined_status(None, "a", outcome, 9.0).rows != ()
    assert body is not UNKNOWN or world.states()["b"] == "present"


def test_a_host_leads_only_while_no_other_can() -> None:
    world = well()
    leaders = [world.hosts.leader]
    world.now += 6.5

    assert [*leaders, world.hosts.leader] == ["a", None]
    assert world.hosts.doubt is None


@pytest.mark.parametrize(
    ("seen", "doubt"),
    [
        (Seen(Roster()), "the other hosts are not known yet (this one is joining their group)"),
        (Seen(Roster(), None, "GroupAuthorizationFailed"), "not known yet (GroupAuthorizationFailed)"),
        (Seen(Roster("a", 1, (A,)), 80.0), "20 s old: the coordinator of their group is silent"),
        (
            Seen(Roster("b", 1, (B,), (), (Refused("a", A.url, "the name a belongs to a at https://other:1"),)), 100.0),
            "the other hosts do not count this one: the name a belongs to a at https://other:1",
        ),
        (Seen(Roster("b", 1, (B,)), 100.0), "the other hosts do not count this one"),
    ],
)
def test_a_doubtful_roster_makes_an_answer_incomplete(seen: Seen, doubt: str) -> None:
    world = well()
    world.seen = seen

    assert doubt in world.ask().failed[-1].message
    assert doubt in str(world.hosts.answer().error)


def test_offsets_of_a_silent_host_are_as_old_as_they_are() -> None:
    reply = COMMANDS["offset_checker"].reply
    raw = b'{"rows": [{"topic": "orders", "partition": 0, "committed": 5, "end": 9, "age_seconds": 0.2,'
    raw += b' "generation": 1}]}'
    kept = Answer("b/worker-0", msgspec.json.decode(raw, type=reply), 30.5, 30.0)

    [row] = COMMANDS["offset_checker"].reduce([kept], BrokerSnapshot()).rows()

    assert row.age_seconds == pytest.approx(30.2)


def status(name: str, level: Level, reason: str) -> StatusAnswer:
    row = WorkerStatus(name, "worker", "running", "running", 1, 1.0, {}, None, None, "/log")
    return StatusAnswer((row,), Verdict(level, "workers", reason, 5.0), (WorkerRow(name, "worker", age_seconds=0.1),))


def test_the_verdict_is_the_gravest_of_all_hosts_and_a_missing_host_is_part_of_it() -> None:
    world = well()
    for host, of_host in (
        (B, status("worker-0", Level.FAILING, "no worker has worked")),
        (C, status("w", Level.OK, "-")),
    ):
        world.answers(host, status=Raw(msgspec.json.encode(encoded(of_host))))
    own = status("worker-0", Level.OK, "all runs")

    joined = joined_status(own, "a", world.ask("status"), 9.0)
    assert (
        [row.name for row in joined.rows] == [row.name for row in joined.workers] == ["a/worker-0", "b/worker-0", "c/w"]
    )
    assert joined.verdict.sentence == "failing: b: no worker has worked"

    world.answers(B, status=Raw(msgspec.json.encode(encoded(status("worker-0", Level.OK, "-")))))
    assert joined_status(own, "a", world.ask("status"), 9.0).verdict.sentence == "ok: all runs; 3 hosts answer"

    world.bodies[C.url] = AgentUnreachable("gone")
    world.now += 19
    world.ask("status")
    world.now += 1
    missing = joined_status(own, "a", world.ask("status"), 9.0)
    assert missing.verdict.level is Level.DEGRADED
    since = "1970-01-12T13:48:39Z"
    assert f"host c has not answered since {since} (gone); its last answer is 20 s old" in missing.verdict.sentence
    assert [row.age_seconds for row in missing.workers] == [0.1, 0.1, pytest.approx(20.1)]
    assert world.states()["c"] == "silent"
    world.answers(C)
    world.ask()
    assert world.states()["c"] == "present"


@pytest.mark.parametrize("is_own", [False, True])
def test_a_storage_is_shown_if_it_is_that_of_all_hosts(is_own: bool) -> None:
    world = well()
    for host in (B, C):
        theirs = replace(
            status("w", Level.OK, "-"), verdict=Verdict(Level.OK, "fleet", "-", 5.0, has_own_storage=is_own)
        )
        world.answers(host, status=Raw(msgspec.json.encode(encoded(replace(theirs, storage=StorageReply(pending=3))))))

    shown = joined_status(None, "a", world.ask("status"), 9.0).storage

    assert shown == (None if is_own else StorageReply(pending=3))
    assert joined_status(None, "a", world.ask("status", host="c"), 9.0).storage == StorageReply(pending=3)


def test_operations_of_all_hosts_have_their_host_and_missing_hosts_are_named() -> None:
    world = World()
    world.bodies = {B.url: b'{"rows": [{"id": "1"}]}', C.url: b'{"rows": 5}'}

    rows, failed = asyncio.run(world.hosts.operations(1.0))

    assert rows == [{"id": "1", "host": "b"}]
    assert [(each.sender, each.code) for each in failed] == [("c", "bad_result")]

    gone, refused = (Gone(B, 1_000_090.0),), (Refused("c", C.url, "its name is taken"),)
    world = World(Seen(Roster("a", 1, (A,), gone, refused), 100.0))

    rows, failed = asyncio.run(world.hosts.operations(1.0))

    assert rows == []
    assert [(each.sender, each.code, each.message) for each in failed] == [
        ("b", "gone", "host b has left the group of masters without notice at 1970-01-12T13:48:10Z"),
        ("c", "refused", "host c does not count: its name is taken"),
    ]


WORK = ("engine", "workers", "sinkers")
DOWN = "no worker has worked"


def found(level: Level, about: str, what: str, why: str = "", since: float = 100.0) -> Finding:
    return Finding(level, about, f"{what} since {moment(since)}{f': {why}' if why else ''}", since)


def of(*findings: Finding, works: tuple[str, ...] = WORK, oldest: float | None = 1.0, own: bool = False) -> Verdict:
    return replace(Verdict.of(findings[0], findings[1:], oldest), works=works, has_own_storage=own)


def healthy(partitions: str = "2 partitions ok, 4 elsewhere", *words: str, own: bool = False) -> Verdict:
    return of(Finding(Level.OK, "fleet", "; ".join(("everything is running", partitions, *words)), 5.0), own=own)


def joined(*failed: Failed, **heard: Verdict) -> Verdict:
    return joined_verdict(heard, failed, 200.0)


def without(*parts: str) -> tuple[str, ...]:
    return tuple(each for each in WORK if each not in parts)


@pytest.mark.shows("if one host's worker, engine or sinkers are down and another works, the fleet is `degraded`")
@pytest.mark.parametrize("level", [Level.FAILING, Level.UNKNOWN])
@pytest.mark.parametrize("about", WORK)
def test_what_another_host_does_is_degraded_at_most(about: str, level: Level) -> None:
    down = of(found(level, about, DOWN), works=without(about))

    assert joined(a=down, b=healthy(), c=healthy()).sentence == f"degraded: a: {DOWN} since {moment(100.0)}"
    assert joined(a=down).level is level, "no other host answers"
    for needed in ("partitions", "storage", "brokers"):
        assert joined(a=of(found(Level.FAILING, needed, "-")), b=healthy()).level is Level.FAILING, "each host needs it"
    assert joined(a=down, b=of(healthy().main, works=without(about))).level is level, "no other host does it"


def test_no_number_in_another_host_s_words_stops_the_verdict() -> None:
    digits = "9" * 5000
    uneven = of(found(Level.DEGRADED, "partitions", f"{digits} of {digits} partitions have stalled"))

    assert joined(a=healthy(f"{digits} partitions ok"), b=healthy()).level is Level.OK
    assert joined(a=uneven, b=uneven).level is Level.DEGRADED


def test_trouble_of_several_hosts_is_named_once_since_it_began_and_of_all_hosts_without_them() -> None:
    down = [
        of(found(Level.FAILING, "workers", DOWN, f"worker-0 is {state}"), works=()) for state in ("fatal", "stopped")
    ]

    verdict = joined(a=down[0], b=down[1])

    assert verdict.sentence == f"failing: {DOWN} since {moment(100.0)}: a: worker-0 is fatal; b: worker-0 is stopped"
    assert verdict.also == ()

    silent = "no Kafka broker has answered"
    ages = {"a": 101.0, "b": 99.0, "c": 100.0}
    every = {
        host: of(found(Level.FAILING, "brokers", silent, f"no answer for {ages[host]} s", ages[host])) for host in ages
    }
    verdict = joined(**every)
    assert (verdict.reason, verdict.also) == (f"{silent} since {moment(99.0)}: no answer for 101.0 s", ())
    assert joined(**{**every, "b": healthy()}).reason == f"a, c: {silent} since {moment(100.0)}: no answer for 101.0 s"


def test_partitions_of_several_hosts_are_summed() -> None:
    a, b = (
        of(found(Level.DEGRADED, "partitions", f"{count} of 6 partitions warn", f"{name}; the lag rises"))
        for count, name in ((2, "t-0, t-1"), (1, "t-4"))
    )

    verdict = joined(a=a, b=b, c=healthy())

    whys = "a: t-0, t-1; the lag rises; b: t-4; the lag rises"
    assert verdict.reason == f"a, b: 3 of 6 partitions warn since {moment(100.0)}: {whys}"
    assert (
        joined(a=a, b=of(found(Level.FAILING, "partitions", "1 of 6 partitions stalled"))).also[0].level == "degraded"
    )


def test_hosts_that_are_all_well_are_summed_and_what_waits_is_named() -> None:
    catching = "catching up: the oldest unhandled message is 90 s old"

    shared = joined(
        a=healthy("1 partition idle, 1 ok, 4 elsewhere", "50 messages wait in the storage"),
        b=healthy("2 partitions ok, 4 elsewhere", catching, "51 messages wait in the storage"),
        c=healthy("2 of 6 partitions paused: t-4, t-5", "paused on request"),
    )
    assert shared.reason == (
        "everything is running; 1 partition idle, 3 ok; 50 messages wait in the storage; "
        f"{catching}; 2 of 6 partitions paused: t-4, t-5; paused on request; 3 hosts answer"
    )
    own = joined(
        a=healthy("6 partitions ok", "5 messages wait in the storage", own=True), b=healthy("6 partitions elsewhere")
    )
    assert own.reason == "everything is running; 6 partitions ok; a: 5 messages wait in the storage; 2 hosts answer"


@pytest.mark.shows("the age of the oldest unhandled message is unknown while a host with its own part is silent")
def test_the_age_is_known_only_if_all_is_known() -> None:
    gone, silent = Failed("c", "gone", "host c has left"), Failed("c", "timeout", "host c has not answered")
    ages = {"a": of(healthy().main, oldest=3.0), "b": of(healthy().main, oldest=7.0)}

    assert joined(**ages).oldest_unhandled_seconds == 7.0
    assert joined(**ages, c=of(healthy().main, oldest=None)).oldest_unhandled_seconds is None
    assert joined(silent, **ages).oldest_unhandled_seconds is None
    assert joined(gone, **ages).oldest_unhandled_seconds == 7.0, "others have its partitions"
    assert joined(gone, **{**ages, "b": healthy(own=True)}).oldest_unhandled_seconds is None, "its storage is its own"
