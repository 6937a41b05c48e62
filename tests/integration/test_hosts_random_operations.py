"""Random operations of callers at several hosts, while the leading host is killed again and again."""

import os
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from kctl.errors import NoMaster
from kctl_agent.errors import AgentError
from tests.conftest import eventually
from tests.integration.conftest import TOPIC
from tests.integration.hosts import Fleet, fleet

__all__ = ["fleet"]

HOSTS = ("a", "b", "c")
CALLERS = 3
EACH = 30
Ids = set[tuple[str, str, float]]


def some_operation(chance: random.Random) -> tuple[str, dict[str, Any]]:
    host = chance.choice([*HOSTS, "all", "all", None])
    params: dict[str, Any] = {} if host is None else {"host": host}
    scopes: list[dict[str, Any]] = [{"topic": TOPIC}, {"topic": TOPIC, "partition": 1}, {"all": True}]
    scope = chance.choice(scopes)
    operations: list[tuple[str, dict[str, Any]]] = [
        ("pause", scope),
        ("resume", scope),
        ("resume", {"all": True}),
        ("restart", {"all": True} if host == "all" else {"name": "worker-0"}),
        ("restart", {"name": "worker-9"}),
        ("reload", {}),
        ("log_level", {"name": "master", "level": "INFO"}),  # contradicts no other
        ("nonsense", {}),
    ]
    name, more = chance.choice(operations)
    return name, {**params, **more, "deadline_seconds": 20.0}


class Storm:
    def __init__(self, fleet: Fleet, seed: int, count: int) -> None:
        self._fleet = fleet
        self._count = count
        self._seed = seed
        self._wanted, self._ended = threading.Semaphore(0), threading.Semaphore(0)
        self.answered: Ids = set()
        self.outcomes: Counter[str] = Counter()

    def run(self) -> None:
        for name in HOSTS:
            self._fleet.start(name)
        self._fleet.await_all(*HOSTS)
        with ThreadPoolExecutor(CALLERS) as pool:
            callers = [pool.submit(self._call, random.Random(f"{self._seed}-{each}")) for each in range(CALLERS)]
            try:
                for _ in range(self._count // EACH):
                    self._round()
            finally:
                self._wanted.release(self._count)
            for each in callers:
                each.result()

    def _round(self) -> None:
        self._wanted.release(EACH)
        for _ in range(EACH // 2):
            assert self._ended.acquire(timeout=60)
        self._kill_the_leader()
        for _ in range(EACH - EACH // 2):
            assert self._ended.acquire(timeout=60)
        self._fleet.await_all(*HOSTS)

    def _call(self, chance: random.Random) -> None:
        for _ in range(self._count // CALLERS):
            self._wanted.acquire()
            at = chance.choice(HOSTS)
            name, params = some_operation(chance)
            try:
                self.outcomes[self._outcome(at, name, params)] += 1
            finally:
                self._ended.release()

    def _outcome(self, at: str, name: str, params: dict[str, Any]) -> str:
        try:
            reply = self._fleet.masters[at].ask(name, timeout_seconds=30.0, **params)
        except NoMaster:
            return "refused"
        except AgentError:
            return "not answered: the master was killed"
        if reply.error is not None:
            return "refused"
        self.answered.add((at, reply.result["id"], reply.result["started_at"]))
        return str(reply.result["state"])

    def _kill_the_leader(self) -> None:
        leaders = []
        for name in HOSTS:
            with suppress(AgentError, NoMaster):
                leaders.append(self._fleet.masters[name].ask("hosts", of_master=True).result["leader"])
        name = next((each for each in leaders if each in HOSTS), HOSTS[0])
        self._fleet.kill(name)
        self._fleet.start(name)


def check(fleet: Fleet, storm: Storm, count: int) -> None:
    fleet.await_all(*HOSTS)
    for name in HOSTS:
        eventually(partial(is_quiet, fleet, name), what=f"operations of {name} have not ended")
    audits = {name: fleet.audit(name) for name in HOSTS}
    begun = {name: fleet.audit(name, state="running") for name in HOSTS}

    assert storm.outcomes.total() == count
    failed = Counter(line["text"] for lines in audits.values() for line in lines if line["state"] == "failed")
    assert storm.outcomes["done"] > count // 20, (storm.outcomes, failed.most_common(20))
    for name, lines in audits.items():
        keys = [(name, line["id"], line["started_at"]) for line in lines]
        assert len(keys) == len(set(keys)), "each has one end"
        assert set(keys) == {(name, line["id"], line["started_at"]) for line in begun[name]}
        assert not [line for line in lines if "a defect" in line["text"]]
        assert {each for each in storm.answered if each[0] == name} <= set(keys)
    for name in HOSTS:
        assert_equal(name, audits)
        assert_as_reported(fleet, name, audits[name])


def is_quiet(fleet: Fleet, name: str) -> bool:
    rows = fleet.masters[name].ask("operations", of_master=True).result["rows"]
    return all(row["state"] != "running" for row in rows)


def assert_equal(name: str, audits: dict[str, list[dict[str, Any]]]) -> None:
    """A host has recorded as done whatever another host reports as done on it."""
    for other in HOSTS:
        sent = [line for line in audits[name] if line["params"].get("host") == other != name]
        done = [line for line in audits[other] if line["state"] == "done" and line["by"].endswith(f" on {name}")]
        assert sum(line["state"] == "done" for line in sent) <= len(done), (name, other)


def assert_as_reported(fleet: Fleet, name: str, lines: list[dict[str, Any]]) -> None:
    """The host pauses what its operations report. An unknown outcome claims nothing."""
    paused: set[tuple[Any, Any]] | None = set()
    for line in sorted(lines, key=lambda line: float(line["ended_at"])):
        params, is_done = line["params"], line["state"] == "done"
        if line["operation"] not in ("pause", "resume") or params.get("host") not in (None, name, "all"):
            continue
        if params.get("host") == "all" and is_done and line["text"].split(": ")[1] == HOSTS[0]:
            continue  # the leading host made this one do its part, which has its own line
        if line["state"] == "unknown" or (params.get("host") == "all" and not is_done):
            paused = None
        elif is_done and line["operation"] == "resume" and params.get("all"):
            paused = set()
        elif is_done and paused is not None:
            scope = params.get("topic"), params.get("partition")
            if line["operation"] == "pause":
                paused.add(scope)
            else:
                paused = {each for each in paused if each != scope and (scope[1] is not None or each[0] != scope[0])}
    if paused is not None:
        [row] = fleet.masters[name].ask("status", of_master=True, local=True).result["rows"]
        assert {(each["topic"], each["partition"]) for each in row["paused"]} == paused, lines[-8:]


MANY = int(os.environ.get("KCTL_TEST_OPERATIONS", "990")), int(os.environ.get("KCTL_TEST_SEED", "2"))


@pytest.mark.shows("random operations while leaders are killed are each answered, rejected or interrupted")
@pytest.mark.parametrize(("count", "seed"), [(EACH, 1), pytest.param(*MANY, marks=pytest.mark.long)])
def test_random_operations_at_several_hosts_while_leaders_are_killed(fleet: Fleet, count: int, seed: int) -> None:
    storm = Storm(fleet, seed, count)
    storm.run()
    check(fleet, storm, count)
