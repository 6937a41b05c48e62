"""The recipes of docs/architecture.md are run on a copy of the packages and change only as many files as they name."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, get_type_hints

import pytest

from kctl import fleets
from kctl.cli.entry import run
from kctl.cli.fleet.tables import VIEWS, View
from kctl.groups.broker_cache import BrokerCache
from kctl.http.api.paging import Key
from kctl.master.control.server import ControlServer
from kctl.master.control.service import MasterService
from kctl.master.events import EventFeed
from kctl.master.members import Members
from kctl.master.reduction import COMMANDS
from kctl.master.verdict import Verdicts
from kctl.reduce.base import Answer
from kctl.rows.workers import WorkerRow
from kctl.rpc.fan_out import AgentPool
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.replies.questions import QUESTIONS, named
from kctl_agent.replies.workers import WorkerReply
from kctl_agent.rpc.server import AgentServer
from kctl_agent.rpc.snapshot import Snapshot
from tests.fleet_snapshot import healthy
from tests.offset_path import NUMBER, Walk, walked, watched
from tests.unit.kctl_master.no_brokers import NoBrokers

ROOT = Path(__file__).parents[2]
TYPES = {each.sent.rpartition(".")[2]: named(each.sent) for each in QUESTIONS.values()}  # by names of annotations
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


class Copy:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for package in ("kctl", "agent/kctl_agent"):
            shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))

    @contextmanager
    def recipe(self, name: str) -> Iterator[None]:
        self._edited: set[str] = set()
        yield
        [text] = re.findall(rf"^- \*\*{name}\*\* (.*?)(?=^- )", PAGE, re.MULTILINE | re.DOTALL)
        assert text.startswith(f"({len(self._edited)} files)")

    def make(self, path: str, text: str) -> None:
        self._edited.add(path)
        (self.folder / path).write_text(text, encoding="utf-8")

    def replace(self, path: str, changes: Mapping[str, str]) -> None:
        text = (self.folder / path).read_text(encoding="utf-8")
        for before, after in changes.items():
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        self.make(path, text)

    def run(self, script: str, *words: str) -> None:
        path = os.pathsep.join(map(str, (self.folder, self.folder / "agent", ROOT)))
        command, env = [sys.executable, "-c", script, *words], {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


REPLY = '''"""`threads`: the threads of each process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ThreadRow:
    process: str
    count: int


@dataclass(frozen=True, slots=True)
class ThreadsReply:
    """How many threads each process has."""

    rows: tuple[ThreadRow, ...] = ()
'''
QUESTION = """    "threads": Question(
        "The threads of each process",
        "how many threads it has",
        f"{_REPLIES}.threads.ThreadsReply",
        key=("process", "count"),
        kinds=("worker", "sinker", "engine"),
        path="threads",
        path_summary="The threads of each process",
    ),
"""
STATS = "agent/kctl_agent/process/stats.py"
OPERATION = '''"""`greet`: a greeting."""

from __future__ import annotations

from kctl.master.operations.fleet_operation import Caller, Context, Done, FleetOperation, Report
from kctl_agent.rpc.params import param


class Greet(FleetOperation, rpc="greet"):
    """Greet a process.

    kctl greet worker-0
    """

    name: str = param("a worker", is_argument=True)

    def touches(self, context: Context) -> frozenset[str]:
        return frozenset()

    async def carry_out(self, context: Context, caller: Caller, report: Report) -> Done:
        return f"{caller.name} greets {self.name}", {}
'''
RULE = """def _crowded(case: _Case, rows: Rows, found: Judgements) -> Bools:
    fits: Bools = case.lag[rows] > 1000
    found.put(rows[fits], Status.WARN, JudgementReason.CROWDED)
    return fits


_RULES: tuple[_Rule, ...] = (
"""
AHEAD = """    @property
    def ahead(self) -> Ints | None:
        if self.position is None:
            return None
        is_known = (self.position != ABSENT) & (self.committed != ABSENT)
        return np.where(is_known, self.position - self.committed, ABSENT)

"""
WORKS = """
import asyncio, sys
from contextlib import ExitStack
from dataclasses import replace
from kctl.cli.completion import complete
from kctl.cli.entry import tree
from kctl.cli.fleet.tables import lines_of, read
from kctl.cli.fleet.worker_table import RPC_WIDE, worker_table
from kctl.cli.help import page
from kctl.exporter import METRICS
from kctl.http.api.answers import lag_rows
from kctl.http.api.lists import router
from kctl.master.collector import _KEPT
from kctl.master.control.service import METHODS
from kctl.master.members import Members
from kctl.master.operations.base import Caller
from kctl.master.reduction import COMMANDS, WORKERS
from kctl.master.snapshot import Reduced
from kctl.operations import operations
from kctl.reduce.base import Answer, BrokerSnapshot
from kctl.rows.workers import WorkerRow
from kctl.rpc.decode import decoded
from kctl.rpc.fan_out import AgentPool
from kctl.status import Owner
from kctl_agent.engine import main as engine
from kctl_agent.engine.main import EngineProcessStats
from kctl_agent.replies.threads import ThreadRow, ThreadsReply
from kctl_agent.rpc.commands import COMMANDS as OF_AGENTS, with_describe
from kctl_agent.rpc.operations import Inbox
from kctl_agent.rpc.server import AgentServer
from kctl_agent.sinker import main as sinker
from kctl_agent.sinker.stats import SinkerProcessStats
from kctl_agent.worker import main as worker
from kctl_agent.worker.stats import WorkerStats
from pathlib import Path
from tests.fleet_snapshot import ask, healthy
from tests.partitions import Row, RowAssessor
from tests.replies import raw
from tests.rpc_page import reference
from tests.scratch_storage import ScratchStorage
from urllib.parse import quote

run_dir = Path(sys.argv[1])

async def asked():
    kinds = {"engine": "engine", "sinker-0": "sinker", "worker-0": "worker"}
    pool = AgentPool()
    members = Members(run_dir, lambda: kinds, lambda: (), pool)
    sockets = members.concerned(await members.sockets(), "threads")
    outcome = await members.ask(sockets, "threads", {}, asyncio.get_running_loop().time() + 60.0)
    pool.close()
    await asyncio.sleep(0)
    command = COMMANDS["threads"]
    decoded = command.decoded(outcome)
    assert not decoded.failed, decoded.failed
    return command.encoded(command.reduce(decoded.answers, BrokerSnapshot()))

async def paged():
    of_all = ThreadsReply(tuple(ThreadRow("a/worker-0", count) for count in (9, 10, 11)))
    latest = replace(healthy(), kept={"threads": Reduced(of_all)})
    first = (await ask(latest, "/api/v1/threads?limit=2")).json()
    second = (await ask(latest, f"/api/v1/threads?after={quote(first['next'])}")).json()
    return [row["count"] for page in (first, second) for row in page["rows"]]

def storing(kind):
    return lambda name, server, inbox: kind(name, server, ScratchStorage(), inbox)

with ExitStack() as stack:
    for name, module, kind in (
        ("engine", engine, EngineProcessStats),
        ("sinker-0", sinker, storing(SinkerProcessStats)),
        ("worker-0", worker, storing(WorkerStats)),
    ):
        inbox = Inbox()
        server = stack.enter_context(AgentServer(run_dir, name, with_describe(module._commands(inbox))))
        stats = kind(name, server, inbox)
        stats.start()
        stack.callback(stats.close)
    answer = asyncio.run(asked())
heading, *shown = lines_of("threads", read("threads", raw(answer)))
assert (heading, [line.split()[0] for line in shown]) == ("process   count", ["engine", "sinker-0", "worker-0"])
assert asyncio.run(paged()) == [9, 10, 11]
assert "onThreads" in METHODS and "getThreads" in METHODS
assert "threads" in _KEPT and any(route.path == "/api/v1/threads" for route in router.routes)
[rpc] = [each for each in tree().commands if each.name == "rpc"]
assert "The threads of each process" in page(rpc, "kctl rpc")
assert complete(tree(), ["rpc", "thr"], "bash") == ["threads"]
assert "### `threads`" in reference()

snapshot = EngineProcessStats("engine", None, Inbox())._snapshot()
sent = OF_AGENTS["workers"].answer(snapshot, {}, snapshot.published_at)
rows = WORKERS.reduce([Answer("engine", decoded(WorkerRow, raw(sent)), 0.0)], BrokerSnapshot()).rows
assert "threads" in list(worker_table(rows, RPC_WIDE))[0].split()
assert sent["threads"] == rows[0].threads > 0
assert any(each.name == "kctl_worker_threads" for each in METRICS)
assert "`rows[].threads`: Its threads." in reference()

[command] = [each for each in tree().commands if each.name == "greet"]
assert "Greet a process." in page(command, "kctl greet")
greet = operations()["greet"].given({"name": "worker-0"})
assert asyncio.run(greet.carry_out(None, Caller(0), None))[0].endswith("greets worker-0")
assert "**`kctl greet`**: Greet a process." in reference()

rows = [Row("orders", number, 0, 0, 0, end, None, "worker-0", 1, 0.0) for number, end in enumerate((1000, 1001))]
first, second = RowAssessor().assess(rows, lambda _: Owner("worker-0", "running"), 5.0, 1000.0)
assert "too much" not in first.reason
assert f"{second.status} {second.reason}" == "warn too much: 1001 messages wait"

snapshot = healthy()
partitions = snapshot.offset_checker.result
rows = read("offset_checker", raw(COMMANDS["offset_checker"].encoded(partitions))).rows
assert [row.ahead for row in rows] == [0, 0, None]
assert [row["ahead"] for row in lag_rows(snapshot, partitions)] == [row.ahead for row in rows]
assert [row["ahead"] for row in snapshot.groups[0].partitions.to_json()] == [row.ahead for row in rows]
assert "`rows[].ahead`: Messages that were read and not committed." in reference()
"""


@pytest.mark.shows("adding an RPC for all kinds of processes takes 3 files, a field or an operation 2")
@pytest.mark.shows("adding a status rule or a column of partitions takes 2 files")
def test_each_recipe_works_with_as_many_files_as_the_page_names(tmp_path: Path, short_dir: Path) -> None:
    copy = Copy(tmp_path)
    with copy.recipe("An RPC `getXxx`/`onXxx`"):
        copy.make("agent/kctl_agent/replies/threads.py", REPLY)
        ping = '    "ping": Question(\n'
        copy.replace("agent/kctl_agent/replies/questions.py", {ping: f"{QUESTION}{ping}"})
        taken = "threads = ThreadsReply((ThreadRow(self._name, threading.active_count()),))"
        inbox = "from kctl_agent.rpc.operations import Inbox\n"
        changes = {
            "return Snapshot(now, worker, self._progress)": f"{taken}\n"
            "        return Snapshot(now, worker, self._progress, (threads,))",
            inbox: f"from kctl_agent.replies.threads import ThreadRow, ThreadsReply\n{inbox}",
        }
        copy.replace(STATS, changes)
    with copy.recipe("A field of a reply"):
        declared = '    threads: int | None = value("kctl_worker_threads", "Its threads.", column="threads")\n'
        rows, bytes_ = "    last_batch_rows: ", "            rss_bytes=_resident_bytes(),\n"
        copy.replace("agent/kctl_agent/replies/workers.py", {rows: f"{declared}{rows}"})
        copy.replace(STATS, {bytes_: f"{bytes_}            threads=threading.active_count(),\n"})
    with copy.recipe("An operation"):
        copy.make("kctl/operations/greet.py", OPERATION)
        copy.replace("kctl/operations/__init__.py", {'    "pause": ': '    "greet": "Greet",\n    "pause": '})
    with copy.recipe("A status rule"):
        text = '    JudgementReason.CROWDED: lambda case: f"too much: {case.waiting}",\n'
        reason, words = "    SILENT = auto()\n", "    JudgementReason.SILENT: _silent,\n"
        copy.replace("kctl/status/judgements.py", {reason: f"    CROWDED = auto()\n{reason}", words: f"{text}{words}"})
        rules, silent = "_RULES: tuple[_Rule, ...] = (\n", "    _silent,\n"
        copy.replace("kctl/status/rules.py", {rules: RULE, silent: f"    _crowded,\n{silent}"})
    with copy.recipe("A column of partitions"):
        worker, before = "    worker: str | None = None\n", "    @property\n    def age_seconds(self) -> Reals:\n"
        described = '    """Messages that were read and not committed."""\n'
        copy.replace("kctl/rows/partitions.py", {worker: f"    ahead: int | None = None\n{described}{worker}"})
        copy.replace("kctl/rows/columns.py", {before: f"{AHEAD}{before}"})

    copy.run(WORKS, str(short_dir))


@pytest.mark.parametrize("rpc", sorted(QUESTIONS))
def test_what_a_question_names_is_there_and_fits(rpc: str) -> None:
    """mypy cannot check these types, because they are given by name."""
    question, command = QUESTIONS[rpc], COMMANDS[rpc]
    sent, reduced = named(question.sent), named(question.reply)
    if question.reducer:
        hints = get_type_hints(command.reduce)
        decoded: Any = WorkerRow if reduced is WorkerReply else reduced
        assert hints["answers"] == Sequence[Answer[decoded]]
        reduced = hints["return"]
    if question.view:
        hints = get_type_hints(command.shown)
        assert list(hints.values()) == [reduced, sent]
    view, default = VIEWS.get(rpc, View()), View()
    for function, of_any in zip(view, default, strict=True):
        if callable(function) and function is not of_any:
            [taken, *_] = get_type_hints(function, localns=TYPES).values()
            assert taken is sent
    assert question.key or not question.filters
    if question.key and question.path:
        assert set(Key.of(sent, question.rows, question.key).types) <= {str, int}


@pytest.mark.shows("an answer to `getXxx` passes at most 18 files from the agent's snapshot to the table of `kctl rpc`")
async def test_an_answer_passes_at_most_18_files_from_the_snapshot_to_the_printed_table(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir, pool, latest, walk = short_dir / "run", AgentPool(), healthy(), Walk()
    run_dir.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_dir))
    brokers = BrokerCache(NoBrokers(), "127.0.0.1:1", "g")
    members = Members(run_dir, lambda: {"worker-0": "worker"}, lambda: (), pool)
    verdicts = Verdicts(lambda: latest, 5.0, lambda: latest.taken_at)
    service = MasterService(members, brokers, lambda: (), verdicts, EventFeed())
    control = ControlServer(lambda request, _caller: service.answer(request))
    replies = (StorageReply("file:/storage", pending=NUMBER),)
    with watched(walk), ExitStack() as stack:
        server = stack.enter_context(AgentServer(run_dir, "worker-0"))
        server.publish(Snapshot(monotonic(), WorkerReply.starting("worker-0", "worker"), replies=replies))
        await control.start(run_dir)
        entry = fleets.register("rpc-path", run_dir, short_dir / "kctl.toml", {"XDG_RUNTIME_DIR": str(short_dir)})
        stack.callback(fleets.unregister, entry)
        await asyncio.to_thread(run, ["rpc", "block_size"])
        await control.close()
        pool.close()
    await brokers.close()

    assert str(NUMBER) in capsys.readouterr().out
    assert {"agent/kctl_agent/rpc/dispatch.py", "kctl/reduce/base.py"} <= walk.files, "other threads are seen too"
    assert len(walk.files) <= 18, sorted(walk.files)


@pytest.mark.shows("a committed offset passes at most 20 files and 8 value types to `/metrics`, status rules included")
def test_a_committed_offset_passes_at_most_20_files_and_8_value_types_on_its_way_to_metrics() -> None:
    walk = walked()

    assert len(walk.files) <= 20, sorted(walk.files)
    assert len(walk.types) <= 8, sorted(walk.types)
