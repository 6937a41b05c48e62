from __future__ import annotations

import pytest
from msgspec.structs import replace

from kctl.fields import moment
from kctl.hosts.status import joined_verdict
from kctl.rows.verdict import Finding, Level, Verdict
from kctl.rpc.fan_out import Failed

WORK = ("engine", "workers", "sinkers")
DOWN = "no worker has worked"


def found(level: Level, about: str, what: str, why: str = "", since: float = 100.0) -> Finding:
    return Finding(level, about, f"{what} since {moment(since)}{f': {why}' if why else ''}", since)


def of(*findings: Finding, works: tuple[str, ...] = WORK, oldest: float | None = 1.0, own: bool = False) -> Verdict:
    return replace(Verdict.of(findings[0], findings[1:], oldest), works=works, has_own_storage=own)


def well(partitions: str = "2 partitions ok, 4 elsewhere", *words: str, own: bool = False) -> Verdict:
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

    assert joined(a=down, b=well(), c=well()).sentence == f"degraded: a: {DOWN} since {moment(100.0)}"
    assert joined(a=down).level is level, "no other host answers"
    for needed in ("partitions", "storage", "brokers"):
        assert joined(a=of(found(Level.FAILING, needed, "-")), b=well()).level is Level.FAILING, "each host needs it"
    assert joined(a=down, b=of(well().main, works=without(about))).level is level, "no other host does it"


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
    assert joined(**{**every, "b": well()}).reason == f"a, c: {silent} since {moment(100.0)}: no answer for 101.0 s"


def test_partitions_of_several_hosts_are_summed() -> None:
    a, b = (
        of(found(Level.DEGRADED, "partitions", f"{count} of 6 partitions warn", f"{name}; the lag rises"))
        for count, name in ((2, "t-0, t-1"), (1, "t-4"))
    )

    verdict = joined(a=a, b=b, c=well())

    whys = "a: t-0, t-1; the lag rises; b: t-4; the lag rises"
    assert verdict.reason == f"a, b: 3 of 6 partitions warn since {moment(100.0)}: {whys}"
    assert (
        joined(a=a, b=of(found(Level.FAILING, "partitions", "1 of 6 partitions stalled"))).also[0].level == "degraded"
    )


def test_hosts_that_are_all_well_are_summed_and_what_waits_is_named() -> None:
    catching = "catching up: the oldest unhandled message is 90 s old"

    shared = joined(
        a=well("1 partition idle, 1 ok, 4 elsewhere", "50 messages wait in the storage"),
        b=well("2 partitions ok, 4 elsewhere", catching, "51 messages wait in the storage"),
        c=well("2 of 6 partitions paused: t-4, t-5", "paused on request"),
    )
    assert shared.reason == (
        "everything is running; 1 partition idle, 3 ok; 50 messages wait in the storage; "
        f"{catching}; 2 of 6 partitions paused: t-4, t-5; paused on request; 3 hosts answer"
    )
    own = joined(
        a=well("6 partitions ok", "5 messages wait in the storage", own=True), b=well("6 partitions elsewhere")
    )
    assert own.reason == "everything is running; 6 partitions ok; a: 5 messages wait in the storage; 2 hosts answer"


@pytest.mark.shows("the age of the oldest unhandled message is unknown while a host with its own part is silent")
def test_the_age_is_known_only_if_all_is_known() -> None:
    gone, silent = Failed("c", "gone", "host c has left"), Failed("c", "timeout", "host c has not answered")
    ages = {"a": of(well().main, oldest=3.0), "b": of(well().main, oldest=7.0)}

    assert joined(**ages).oldest_unhandled_seconds == 7.0
    assert joined(**ages, c=of(well().main, oldest=None)).oldest_unhandled_seconds is None
    assert joined(silent, **ages).oldest_unhandled_seconds is None
    assert joined(gone, **ages).oldest_unhandled_seconds == 7.0, "others have its partitions"
    assert joined(gone, **{**ages, "b": well(own=True)}).oldest_unhandled_seconds is None, "its storage is its own"
