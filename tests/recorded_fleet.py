"""A fleet of agents with recorded replies, and all of its output: `python -m tests.recorded_fleet` records it."""

import asyncio
import contextlib
import io
import json
import re
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import httpx

from kctl import fleets
from kctl.cli.entry import run
from kctl.config.load import load
from kctl.exporter import Exposition
from kctl.exporter.text import Exposed
from kctl.groups.broker_cache import BrokerCache
from kctl.http.api.api import Streams
from kctl.http.app import create_app
from kctl.http.source import SnapshotSource
from kctl.master.collector import Collector
from kctl.master.control.server import ControlServer
from kctl.master.control.service import MasterService
from kctl.master.events import EventFeed
from kctl.master.members import Members
from kctl.master.reduction import STALE_SECONDS
from kctl.master.snapshot import FleetSnapshot
from kctl.master.supervisor import Supervisor
from kctl.master.verdict import Verdicts
from kctl.reduce.base import BrokerSnapshot, Freshness, GroupStats
from kctl.rows.workers import WorkerStatus
from kctl.rpc.fan_out import AgentPool
from kctl_agent.replies.questions import QUESTIONS
from kctl_agent.replies.workers import Scope
from tests.fleet_snapshot import full_snapshot, source_of
from tests.partitions import Row, columns_of
from tests.served_groups import CLUSTERS, serving_groups
from tests.servers.scripted_agent import Answers, ScriptedAgent

FOLDER = Path(__file__).parent / "unit" / "recorded"
OUTPUTS = FOLDER / "outputs.txt"
_API = (
    *("status", "lag", "lag?history=1&status=stalled", "lag?live=1", "lag?live=1&worker=worker-0"),
    *("storage", "storage?live=1", "members", "topics", "topics?topic=orders&limit=1&after=orders/0"),
    *("workers", "workers?live=1&kind=sinker"),
)
_UNIX = re.compile(r"\b\d{10}(?:\.\d+)?\b")
_ISO = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_FINE = re.compile(r"\b\d+\.\d{4,}\b")
_DAY = 86_400.0
_VOLATILE = re.compile(r'"collect_seconds": [\d.]+|^kctl_(?:cluster_)?collect_duration_seconds.*$', re.MULTILINE)


def _status(name: str, kind: str, **more: Any) -> WorkerStatus:
    given: dict[str, Any] = {
        "desired": "running",
        "state": "running",
        "pid": 4000,
        "since_seconds": 61.5,
        "restarts_by_cause": MappingProxyType({"exit": 0, "signal": 0, "memory": 0}),
        "next_try_seconds": None,
        "last_error": None,
        "log": f"/log/{name}.log",
        "resident_bytes": 104857600,
    }
    return WorkerStatus(name, kind, **(given | more))


_PAUSES = Scope("orders", 1, "ann", 1763719442.0), Scope(None, None, "bob", 1763719442.0)
STATUSES = (
    _status("worker-0", "worker", paused=_PAUSES[:1], warning="not applied"),
    _status("worker-1", "worker", restarts_by_cause=MappingProxyType({"exit": 0, "signal": 2, "memory": 1})),
    _status("worker-2", "worker", state="backoff", pid=None, next_try_seconds=3.5, last_error="exit code 1"),
    _status("worker-3", "worker", desired="stopped", state="stopped", pid=None, resident_bytes=None, paused=_PAUSES),
    _status("sinker-0", "sinker"),
    _status("engine", "engine"),
)


class _Stand:
    last_success: Mapping[str, float] = MappingProxyType({"committed": 1.0, "offsets": 2.0, "group": 3.0})
    nothing_known = BrokerSnapshot()
    error = None

    async def refresh(self, _timeout_seconds: float) -> None:
        pass

    def snapshot(self) -> BrokerSnapshot:
        names = [("orders", number) for number in range(4)] + [("payments", 0), ("payments", 1)]
        rows = (Row(*name, 0, 390 + name[1], None, 510, None, None, None, 0.5) for name in names)
        return BrokerSnapshot(columns_of(*rows, now=time.monotonic()), GroupStats("stable", 3))

    def freshness(self) -> Freshness:
        return Freshness(0.5, 0.5, 4.0, None)

    def status(self) -> tuple[WorkerStatus, ...]:
        return STATUSES

    def kinds(self) -> dict[str, str]:
        return {each.name: each.kind for each in STATUSES}

    def memory_limits(self) -> dict[str, int]:
        return {"worker-0": 209715200}

    def on_heartbeats(self, _beats: object, _at: float) -> None:
        pass

    async def resident_bytes(self) -> dict[str, int]:
        return {each.name: each.resident_bytes for each in STATUSES if each.resident_bytes is not None}


@contextmanager
def _agents(run_dir: Path) -> Iterator[None]:
    replies = json.loads((FOLDER / "replies.json").read_text(encoding="utf-8"))
    with ExitStack() as stack:
        for name, by_command in replies.items():
            script = {rpc: Answers(result, 0.25) for rpc, result in by_command.items()}
            stack.enter_context(ScriptedAgent(run_dir, name, script))
        yield


@asynccontextmanager
async def _master(folder: Path) -> AsyncIterator[SnapshotSource]:
    (folder / "kctl.toml").write_text(
        '[kafka]\nbootstrap_servers = "127.0.0.1:1"\ngroup = "billing"\ntopics = ["orders", "payments"]\n'
    )
    stand, pool, feed = _Stand(), AgentPool(), EventFeed()
    brokers, supervisor = cast(BrokerCache, stand), cast(Supervisor, cast(Any, stand))
    members = Members(folder / "run", stand.kinds, stand.status, pool)
    collector = Collector(load(folder / "kctl.toml", {}), members, brokers, supervisor, feed, dict)
    snapshots: list[FleetSnapshot] = []
    collecting = asyncio.ensure_future(collector.run())
    while not snapshots:
        assert not collecting.done(), collecting.exception()
        await feed.wait_beyond(0)
        latest = collector.latest()
        snapshots += [] if latest is None else [latest]
    collecting.cancel()
    verdicts = Verdicts(lambda: snapshots[0], STALE_SECONDS, lambda: snapshots[0].taken_at + 1.0)
    service = MasterService(members, brokers, stand.status, verdicts, feed)
    control = ControlServer(lambda request, _caller: service.answer(request))
    await control.start(folder / "run")
    exposition = Exposition(lambda: snapshots[0])
    try:
        yield source_of(
            snapshots[0],
            verdicts=verdicts,
            metrics=exposition.page,
            feed=feed,
            ask=service.ask,
            clock=lambda: snapshots[0].taken_at + 1.0,
        )
    finally:
        await control.close()
        pool.close()
        await asyncio.sleep(0)


async def _outputs(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    (folder / "run").mkdir(mode=0o700)
    (folder / "run" / "master.json").write_text('{"pid": 9, "version": "0.1.0", "http_url": "http://127.0.0.1:9750"}')
    with _agents(folder / "run"):
        async with _master(folder) as source:
            env = {"XDG_RUNTIME_DIR": str(folder)}
            fleets.register("recorded", folder / "run", folder / "kctl.toml", env)
            for words in _command_lines():
                found[f"kctl {words}"] = await asyncio.to_thread(_printed, words, env)
            transport = httpx.ASGITransport(create_app(source).guarded)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                for path in (*(f"/api/v1/{each}" for each in _API), "/openapi.json", "/readyz"):
                    found[path] = (await client.get(path)).text
                found["/metrics"] = (await client.get("/metrics")).text
            found["events"] = "".join([line async for line in _events(source)])
    steady = {name: _steady(_by_line(name, text), folder) for name, text in found.items()}
    for name, latest in ("a table", full_snapshot()), ("groups", CLUSTERS):
        steady[f"/metrics of {name}"] = _page(latest, known="".join(steady.values()))
    return steady


def _page(latest: Exposed, known: str) -> str:
    """Renders metrics without the HELP and TYPE lines in `known`."""
    lines = Exposition(lambda: latest).render()[0].decode().splitlines()
    return "\n".join(line for line in lines if not line.startswith("# ") or line not in known)


def _command_lines() -> Iterator[str]:
    for command in QUESTIONS:
        for output in ("table", "json"):
            yield f"rpc {command} -o {output}"
    yield from (
        "rpc workers -o wide",
        "rpc workers --worker worker-0 -o yaml",
        "rpc workers --worker worker-1",
        "rpc offset_checker --worker worker-0",
        "rpc offset_checker --worker worker-3",
        "rpc kafka_lag --fail-above 1",
    )
    yield from ("status -o table", "status -o json")


def _printed(words: str, env: Mapping[str, str]) -> str:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words.split(), env)
    return f"{out.getvalue()}{err.getvalue()}exit code {code}\n"


async def _events(source: SnapshotSource) -> AsyncIterator[str]:
    async for line in Streams(source, "life").begin(None, 500):
        if line.startswith("event: collected"):
            return
        yield line


def _by_line(name: str, text: str) -> str:
    """Returns a JSON document with a line for each field and each object of a list. Other text is unchanged. The long
    verdict stays only in answers about the status."""
    try:
        document, end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return text
    if "status" not in name and "verdict" in document:
        document["verdict"] = document["verdict"]["level"]
    lines = [f"{json.dumps(field)}: {_text(part)}" for field, part in document.items()]
    return "\n".join([*lines, text[end:].strip()])


def _text(part: Any) -> str:
    if isinstance(part, list) and any(isinstance(each, dict) for each in part):
        return "".join(f"\n  {_dumped(each)}" for each in part)
    return _dumped(part)


def _dumped(part: Any) -> str:
    return json.dumps(part, ensure_ascii=False, sort_keys=True)


def _steady(text: str, folder: Path) -> str:
    def unix(found: re.Match[str]) -> str:
        return "NOW" if abs(float(found[0]) - time.time()) < _DAY else found[0]

    def iso(found: re.Match[str]) -> str:
        return "NOW" if abs(datetime.fromisoformat(found[0]).timestamp() - time.time()) < _DAY else found[0]

    text = _ISO.sub(iso, _UNIX.sub(unix, text.replace(str(folder), "FOLDER")))
    return _FINE.sub(lambda found: f"{float(found[0]):.3f}", _VOLATILE.sub("VOLATILE", text))


def _groups() -> dict[str, str]:
    with serving_groups({each.cluster: each for each in CLUSTERS.clusters}) as url:
        lines = ("groups", "group billing", "group lost")
        return {f"kctl {words}": _printed(f"{words} --url {url}", {}) for words in lines}


def outputs() -> dict[str, str]:
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as folder:
        return asyncio.run(_outputs(Path(folder))) | _groups()


def recorded() -> dict[str, str]:
    parts = re.split(r"^===== (.*)\n", OUTPUTS.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


if __name__ == "__main__":
    OUTPUTS.write_text(
        "".join(f"===== {name}\n{text.rstrip()}\n" for name, text in outputs().items()), encoding="utf-8"
    )
