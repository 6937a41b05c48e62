"""The recipes of docs/architecture.md are carried out on a copy of the packages, with no more files than they name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from kctl.cli.fleet.tables import VIEWS, View
from kctl.http.api.paging import Key
from kctl.master.reduction import COMMANDS
from kctl.reduce.base import Answer
from kctl.rows.workers import WorkerRow
from kctl_agent.replies.questions import QUESTIONS, named
from kctl_agent.replies.workers import WorkerReply
from tests.house import tracked

ROOT = Path(__file__).parents[2]
TYPES = {each.sent.rpartition(".")[2]: named(each.sent) for each in QUESTIONS.values()}
"""Answers by the names that annotations have, where they are imported for types alone."""
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


class Copy:
    """A copy of both packages, in which files are changed as a recipe has it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.edited: set[str] = set()
        for package in ("kctl", "agent/kctl_agent"):
            shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))

    def make(self, path: str, text: str) -> None:
        self.edited.add(path)
        (self.folder / path).write_text(text, encoding="utf-8")

    def replace(self, path: str, changes: Mapping[str, str]) -> None:
        text = (self.folder / path).read_text(encoding="utf-8")
        for before, after in changes.items():
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        self.make(path, text)

    def run(self, script: str, *words: str) -> str:
        """What a script prints that imports the copy, and the tests beside it."""
        path = os.pathsep.join(map(str, (self.folder, self.folder / "agent", ROOT)))
        env = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-c", script, *words], cwd=self.folder, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def recipe(name: str) -> str:
    [found] = re.findall(rf"^- \*\*{name}\*\* (.*?)(?=^- )", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


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
ASKED = """
import asyncio, sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote
from kctl.http.api.lists import router
from kctl.cli.entry import tree
from kctl.cli.completion import complete
from kctl.cli.fleet.tables import VIEWS, View, lines_of, read
from kctl.http.api.paging import Key
from kctl.cli.help import page
from kctl.master.collector import _KEPT
from kctl.master.control.service import METHODS
from kctl.master.members import Members
from kctl.master.reduction import COMMANDS
from kctl.master.snapshot import Reduced
from kctl.reduce.base import BrokerSnapshot
from kctl.rpc.fan_out import AgentPool
from kctl_agent.engine import main as engine
from kctl_agent.replies.threads import ThreadRow, ThreadsReply
from kctl_agent.engine.main import EngineProcessStats
from kctl_agent.rpc.commands import with_describe
from kctl_agent.rpc.operations import Inbox
from kctl_agent.rpc.server import AgentServer
from kctl_agent.sinker import main as sinker
from kctl_agent.sinker.stats import SinkerProcessStats
from kctl_agent.worker import main as worker
from kctl_agent.worker.stats import WorkerStats
from tests.fleet_snapshot import ask, healthy
from tests.replies import raw
from tests.rpc_page import reference
from tests.scratch_storage import ScratchStorage

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
print(*lines_of("threads", read("threads", raw(answer))), sep="\\n")
assert asyncio.run(paged()) == [9, 10, 11]
assert "onThreads" in METHODS and "getThreads" in METHODS
assert "threads" in _KEPT and any(route.path == "/api/v1/threads" for route in router.routes)
[rpc] = [each for each in tree().commands if each.name == "rpc"]
assert "The threads of each process" in page(rpc, "kctl rpc")
assert complete(tree(), ["rpc", "thr"], "bash") == ["threads"]
assert "### `threads`" in reference()
"""


@pytest.mark.shows("adding an RPC for all kinds of processes takes 3 files, a field or an operation 2")
def test_an_rpc_of_all_kinds_of_processes_is_added_in_three_files(copy: Copy, short_dir: Path) -> None:
    copy.make("agent/kctl_agent/replies/threads.py", REPLY)
    copy.replace(
        "agent/kctl_agent/replies/questions.py", {'    "ping": Question(\n': f'{QUESTION}    "ping": Question(\n'}
    )
    copy.replace(
        STATS,
        {
            "return Snapshot(now, worker, self._progress)": "threads = ThreadsReply((ThreadRow(self._name, "
            "threading.active_count()),))\n        return Snapshot(now, worker, self._progress, (threads,))",
            "from kctl_agent.rpc.operations import Inbox\n": "from kctl_agent.replies.threads import ThreadRow, "
            "ThreadsReply\nfrom kctl_agent.rpc.operations import Inbox\n",
        },
    )

    printed = copy.run(ASKED, str(short_dir)).splitlines()

    assert printed[0] == "process   count"
    assert [line.split()[0] for line in printed[1:]] == ["engine", "sinker-0", "worker-0"]
    assert recipe("An RPC `getXxx`/`onXxx`").startswith(f"({len(copy.edited)} files)")


FIELD = """
from kctl.cli.fleet.worker_table import RPC_WIDE, worker_table
from kctl.exporter import METRICS
from kctl.master.reduction import WORKERS
from kctl.reduce.base import Answer, BrokerSnapshot
from kctl.rpc.decode import decoded
from kctl.rows.workers import WorkerRow
from kctl.rpc.fan_out import AgentPool, fan_out
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.engine.main import EngineProcessStats
from kctl_agent.rpc.commands import COMMANDS
from kctl_agent.rpc.operations import Inbox
from tests.replies import raw
from tests.rpc_page import reference

snapshot = EngineProcessStats("engine", None, Inbox())._snapshot()
sent = COMMANDS["workers"].answer(snapshot, {}, snapshot.published_at)
rows = WORKERS.reduce([Answer("engine", decoded(WorkerRow, raw(sent)), 0.0)], BrokerSnapshot()).rows
print(*worker_table(rows, RPC_WIDE), sep="\\n")
assert sent["threads"] == rows[0].threads > 0
assert any(each.name == "kctl_worker_threads" for each in METRICS)
assert "`rows[].threads`: Its threads." in reference()
"""


def test_a_field_of_a_reply_is_added_in_two_files(copy: Copy) -> None:
    declared = '    threads: int | None = value("kctl_worker_threads", "Its threads.", column="threads")\n'
    copy.replace("agent/kctl_agent/replies/workers.py", {"    last_batch_rows: ": f"{declared}    last_batch_rows: "})
    copy.replace(
        STATS,
        {
            "            rss_bytes=_resident_bytes(),\n": "            rss_bytes=_resident_bytes(),\n"
            "            threads=threading.active_count(),\n"
        },
    )

    heading = copy.run(FIELD).splitlines()[0]

    assert "threads" in heading.split()
    assert recipe("A field of a reply").startswith(f"({len(copy.edited)} files)")


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
GIVEN = """
import asyncio, sys
from kctl.cli.entry import tree
from kctl.cli.help import page
from kctl.master.operations.base import Caller
from kctl.operations import operations
from tests.rpc_page import reference

[command] = [each for each in tree().commands if each.name == "greet"]
assert "Greet a process." in page(command, "kctl greet")
greet = operations()["greet"].given({"name": "worker-0"})
print(asyncio.run(greet.carry_out(None, Caller(0), None))[0])
assert "**`kctl greet`**: Greet a process." in reference()
"""


def test_an_operation_is_added_in_two_files(copy: Copy) -> None:
    copy.make("kctl/operations/greet.py", OPERATION)
    copy.replace("kctl/operations/__init__.py", {'    "pause": ': '    "greet": "Greet",\n    "pause": '})

    assert copy.run(GIVEN).endswith("greets worker-0\n")
    assert recipe("An operation").startswith(f"({len(copy.edited)} files)")


RULE = """def _crowded(case: _Case, rows: Rows, found: Judgements) -> Bools:
    fits: Bools = case.lag[rows] > 1000
    found.put(rows[fits], Status.WARN, JudgementReason.CROWDED)
    return fits


_RULES: tuple[_Rule, ...] = (
"""
JUDGED = """
from kctl.status import Owner
from tests.partitions import Row, RowAssessor

rows = [Row("orders", number, 0, 0, 0, end, None, "worker-0", 1, 0.0) for number, end in enumerate((1000, 1001))]
for each in RowAssessor().assess(rows, lambda _: Owner("worker-0", "running"), 5.0, 1000.0):
    print(each.status, each.reason)
"""


@pytest.mark.shows("adding a status rule or a column of partitions takes 2 files")
def test_a_status_rule_is_added_in_two_files(copy: Copy) -> None:
    text = '    JudgementReason.CROWDED: lambda case: f"too much: {case.waiting}",\n'
    copy.replace(
        "kctl/status/judgements.py",
        {
            "    SILENT = auto()\n": "    CROWDED = auto()\n    SILENT = auto()\n",
            "    JudgementReason.SILENT: _silent,\n": f"{text}    JudgementReason.SILENT: _silent,\n",
        },
    )
    copy.replace(
        "kctl/status/rules.py",
        {"_RULES: tuple[_Rule, ...] = (\n": RULE, "    _silent,\n": "    _crowded,\n    _silent,\n"},
    )

    first, second = copy.run(JUDGED).splitlines()

    assert "too much" not in first
    assert second == "warn too much: 1001 messages wait"
    assert recipe("A status rule").startswith(f"({len(copy.edited)} files)")


COLUMN = """
from kctl.cli.fleet.tables import read
from kctl.http.api.answers import lag_rows
from kctl.master.reduction import COMMANDS
from tests.fleet_snapshot import healthy
from tests.replies import raw
from tests.rpc_page import reference

snapshot = healthy()
partitions = snapshot.offset_checker.result
rows = read("offset_checker", raw(COMMANDS["offset_checker"].encoded(partitions))).rows
print(*[row.ahead for row in rows])
assert [row["ahead"] for row in lag_rows(snapshot, partitions)] == [row.ahead for row in rows]
assert [row["ahead"] for row in snapshot.groups[0].partitions.to_json()] == [row.ahead for row in rows]
assert "`rows[].ahead`: Messages that were read and not committed." in reference()
"""


def test_a_column_of_partitions_is_added_in_two_files(copy: Copy) -> None:
    field = '    ahead: int | None = None\n    """Messages that were read and not committed."""\n'
    copy.replace(
        "kctl/rows/partitions.py", {"    worker: str | None = None\n": f"{field}    worker: str | None = None\n"}
    )
    ahead = (
        "    @property\n    def ahead(self) -> Ints | None:\n        if self.position is None:\n"
        "            return None\n        is_known = (self.position != ABSENT) & (self.committed != ABSENT)\n"
        "        return np.where(is_known, self.position - self.committed, ABSENT)\n\n"
    )
    before = "    @property\n    def age_seconds(self) -> Reals:\n"
    copy.replace("kctl/rows/columns.py", {before: ahead + before})

    assert copy.run(COLUMN).split() == ["0", "0", "None"]
    assert recipe("A column of partitions").startswith(f"({len(copy.edited)} files)")


@pytest.mark.parametrize(
    ("rpc", "used_by"), [("metadata_brokers", set()), ("metadata_topics", {"kctl/master/verdict.py"})]
)
def test_a_question_is_named_where_it_is_declared_and_where_its_answer_is_used(rpc: str, used_by: set[str]) -> None:
    found = {str(path.relative_to(ROOT)) for path in tracked("agent", "kctl") if f'"{rpc}"' in path.read_text("utf-8")}

    assert found == {"agent/kctl_agent/replies/questions.py", *used_by}


@pytest.mark.parametrize("rpc", sorted(QUESTIONS))
def test_what_a_question_names_is_there_and_fits(rpc: str) -> None:
    """The types that mypy cannot see, because they stand by their names."""
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
