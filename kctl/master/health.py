"""Judges from heartbeats and memory samples whether a running process is healthy. Pure."""

from dataclasses import dataclass, replace

from kctl.master.restart import Cause
from kctl_agent.replies.workers import PingReply

BOOT_MARGIN = 1.1
"""A memory limit below this multiple of the size after the start is not applied, because it would restart an idle
worker again and again (celery #3706, #4125)."""
_BOOTING = frozenset({"starting", "joining"})
_WITHOUT_BATCHES = frozenset({"starting", "joining", "paused", "throttled", "stopping"})


@dataclass(frozen=True, slots=True)
class HealthRules:
    """Limits for a healthy process. A limit of None switches its rule off."""

    ping_timeout_seconds: float
    memory_soft_bytes: int | None = None
    memory_hard_bytes: int | None = None
    memory_breaches: int = 3  # consecutive measurements above the soft limit
    stalled_seconds: float | None = None
    main_thread_seconds: float | None = None
    section: str = "workers"


@dataclass(frozen=True, slots=True)
class Health:
    heartbeat_at: float
    progress_at: float  # when it last finished a batch, or kctl expected none
    batch_at: float = float("-inf")
    state: str | None = None
    batches_total: int | None = None
    progress: int | None = None
    main_thread_age_seconds: float | None = None
    hung_seconds: float = 0.0
    """The smaller of the last two ages of its main thread, because a freeze of the whole machine is not a hang."""
    boot_bytes: int | None = None
    resident_bytes: int | None = None
    breaches: int = 0


@dataclass(frozen=True, slots=True)
class Unhealthy:
    """Why a process is unhealthy. If `at_once` is true, kctl kills the process without asking it to stop."""

    cause: Cause
    at_once: bool
    why: str


def on_heartbeat(health: Health, beat: PingReply, now: float) -> Health:
    """Records a ping's answer. A process that has no lag, is paused or is `waiting_for` something need not progress."""
    is_moving = (
        beat.batches_total is None
        or beat.batches_total != health.batches_total
        or (beat.progress is not None and beat.progress != health.progress)
    )
    is_excused = not beat.lag or beat.state in _WITHOUT_BATCHES
    is_well = beat.waiting_for is not None or ((is_moving or is_excused) and not _is_unbegun(beat))
    return replace(
        health,
        heartbeat_at=now,
        progress_at=now if is_well else health.progress_at,
        batch_at=now if (beat.batches_total or 0) > (health.batches_total or 0) else health.batch_at,
        state=beat.state,
        batches_total=beat.batches_total,
        progress=beat.progress,
        main_thread_age_seconds=beat.main_thread_age_seconds,
        hung_seconds=min(health.main_thread_age_seconds or 0.0, beat.main_thread_age_seconds or 0.0),
    )


def on_memory_sample(health: Health, rules: HealthRules, resident_bytes: int) -> Health:
    """Records the memory of a process and its descendants. The first sample after start-up becomes `boot_bytes`."""
    boot_bytes = health.boot_bytes
    if boot_bytes is None and health.state not in _BOOTING:
        boot_bytes = resident_bytes
    health = replace(health, boot_bytes=boot_bytes, resident_bytes=resident_bytes)
    soft = _applied(rules.memory_soft_bytes, health)
    is_above = soft is not None and resident_bytes > soft
    return replace(health, breaches=health.breaches + 1 if is_above else 0)


def judge(rules: HealthRules, health: Health, now: float) -> Unhealthy | None:
    silence = now - health.heartbeat_at
    if silence >= rules.ping_timeout_seconds:
        return Unhealthy(Cause.UNRESPONSIVE, True, f"its agent has not answered for {silence:.1f} s")
    if rules.main_thread_seconds is not None and health.hung_seconds >= rules.main_thread_seconds:
        why = f"its agent answers, but its main thread has hung for {health.hung_seconds:.1f} s"
        return Unhealthy(Cause.UNRESPONSIVE, True, why)
    hard, size = _applied(rules.memory_hard_bytes, health), health.resident_bytes or 0
    if hard is not None and size > hard:
        return Unhealthy(
            Cause.MEMORY, True, f"its memory, {_mebibytes(size)}, is above memory_hard, {_mebibytes(hard)}"
        )
    soft = _applied(rules.memory_soft_bytes, health)
    if soft is not None and health.breaches >= rules.memory_breaches:
        times = f"{health.breaches} times in a row"
        return Unhealthy(
            Cause.MEMORY, False, f"its memory, {_mebibytes(size)}, was above memory_soft, {_mebibytes(soft)}, {times}"
        )
    idle = now - health.progress_at
    if rules.stalled_seconds is not None and idle >= rules.stalled_seconds:
        if _is_unbegun(health):
            return Unhealthy(Cause.STALLED, True, f"its agent answers, but it has not begun its work for {idle:.1f} s")
        return Unhealthy(Cause.STALLED, False, f"it has messages to read and has made no progress for {idle:.1f} s")
    return None


def _is_unbegun(beat: PingReply | Health) -> bool:
    return beat.state == "starting" and beat.main_thread_age_seconds is None


def refusals(rules: HealthRules, health: Health) -> str | None:
    for name, limit in (("memory_soft", rules.memory_soft_bytes), ("memory_hard", rules.memory_hard_bytes)):
        if limit is not None and health.boot_bytes is not None and _applied(limit, health) is None:
            return (
                f"{rules.section}.{name} ({_mebibytes(limit)}) is not applied: right after its start, the process "
                f"uses {_mebibytes(health.boot_bytes)}; raise the limit"
            )
    return None


def _applied(limit: int | None, health: Health) -> int | None:
    if limit is None or health.boot_bytes is None or limit < health.boot_bytes * BOOT_MARGIN:
        return None
    return limit


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:.0f} MiB"
