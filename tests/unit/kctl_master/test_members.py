import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from kctl.groups.broker_cache import BrokerCache
from kctl.master.control.server import ControlServer, SocketLimits
from kctl.master.control.service import MasterService
from kctl.master.events import EventFeed
from kctl.master.members import Members
from kctl.master.operations import base
from kctl.master.snapshot import FleetSnapshot
from kctl.master.verdict import Verdicts
from kctl.rows.verdict import Level, Verdict
from kctl.rpc.client import Reply
from kctl.rpc.fan_out import AgentPool, FanOut
from kctl_agent.errors import BadParams, PathError
from kctl_agent.rpc.messages import Request, Role, reply_ok
from kctl_agent.rpc.wire import MAX_REPLY_BYTES, JsonObject, encode
from tests.caller import Caller
from tests.conformance.sockets import Sockets
from tests.fleet_snapshot import worker
from tests.guest import guest
from tests.servers.scripted_agent import Answers, ScriptedAgent, Stalls
from tests.unit.kctl_master.no_brokers import NoBrokers

NO_VERDICT = Verdicts(lambda: None, 5.0)

ROW = {"topic": "t", "partition": 0, "start": 0, "committed": 4, "position": 5, "end": 10, "generation": 1}
RESULT: JsonObject = {"rows": [{**ROW, "lag": 6, "last_timestamp": None, "age_seconds": 0.0}]}
ROWS = Answers(RESULT)


@pytest.fixture
def agent(short_dir: Path) -> Iterator[Callable[..., ScriptedAgent]]:
    short_dir.chmod(0o700)
    with ExitStack() as stack:
        yield lambda name, **script: stack.enter_context(ScriptedAgent(short_dir, name, script))


@pytest.fixture
async def members(anyio_backend: str, short_dir: Path) -> AsyncIterator[Members]:
    pool = AgentPool()
    statuses = [worker("worker-0", "running"), worker("worker-1", "backoff")]
    yield Members(short_dir, lambda: {each.name: each.kind for each in statuses}, lambda: statuses, pool)
    pool.close()
    await asyncio.sleep(0)


@pytest.fixture
async def service(members: Members) -> AsyncIterator[MasterService]:
    cluster = BrokerCache(NoBrokers(), "nowhere:1", "g")
    yield MasterService(members, cluster, members._statuses, NO_VERDICT, EventFeed())
    await cluster.close()


def request(rpc: str, method: str, deadline_ms: int = 2000, **params: Any) -> Request:
    return Request(Role.EXTERNAL, rpc, method, id="1", params=params, deadline_ms=deadline_ms)


async def ask(members: Members, rpc: str = "ping", seconds: float = 2.0) -> FanOut[Raw]:
    return await members.ask(await members.sockets(), rpc, {}, asyncio.get_running_loop().time() + seconds)


async def test_a_silent_member_is_missed(members: Members, agent: Callable[..., ScriptedAgent]) -> None:
    agent("worker-0")

    outcome = await ask(members)

    assert [answer.sender for answer in outcome.answers] == ["worker-0"]
    assert [(failed.sender, failed.code) for failed in outcome.failed] == [("worker-1", "unreachable")]
    assert outcome.failed[0].message == "the worker is in backoff"

    guest = agent("guest")
    assert [answer.sender for answer in (await ask(members)).answers] == ["guest", "worker-0"]

    guest.vanish()

    assert [failed.sender for failed in (await ask(members)).failed] == ["guest", "worker-1"]

    agent("stale").vanish()
    assert [failed.sender for failed in (await ask(members)).failed] == ["guest", "worker-1"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_killed_attached_one_is_forgotten(members: Members, short_dir: Path, number: signal.Signals) -> None:
    with guest(short_dir, "report") as process:
        assert [answer.sender for answer in (await ask(members)).answers] == ["report"]
        process.send_signal(number)
        await asyncio.to_thread(process.wait, 60)

        assert [failed.sender for failed in (await ask(members)).failed] == ["worker-0", "worker-1"]

    assert os.listdir(short_dir) == []


async def test_the_master_answers_in_time(service: MasterService, agent: Callable[..., ScriptedAgent]) -> None:
    agent("worker-0", kafka_lag=ROWS)
    agent("worker-1", kafka_lag=Stalls())

    async with asyncio.timeout(1):
        reply = await service.answer(request("kafka_lag", "getKafkaLag", deadline_ms=500))

    assert reply["answered"] == ["worker-0"]
    assert [(failed["from"], failed["code"]) for failed in reply["failed"]] == [("worker-1", "timeout")]


async def test_status_before_the_first_collection_is_the_supervisors_view(service: MasterService) -> None:
    result = (await service.answer(request("status", "getStatus", deadline_ms=1)))["result"]

    assert [(row["name"], row["state"]) for row in result["rows"]] == [("worker-0", "running"), ("worker-1", "backoff")]
    assert (result["workers"], result["verdict"]["level"]) == ([], "unknown")


async def test_the_verdict_and_the_rows_of_status_are_of_one_collection(members: Members) -> None:
    def collected(state: str, level: Level) -> FleetSnapshot:
        verdict = Verdict(level, "fleet", "", 0.0)
        return FleetSnapshot("main", "g", time.monotonic(), 0.0, (worker("worker-0", state),), {}, {}, verdict=verdict)

    feed, latest = EventFeed(), collected("running", Level.OK)
    verdicts = Verdicts(lambda: latest, 60.0)
    service = MasterService(
        members, BrokerCache(NoBrokers(), "nowhere:1", "g"), lambda: latest.supervised, verdicts, feed
    )
    before = await service.answer(request("status", "getStatus"))
    service._statuses = lambda: [worker("worker-0", "fatal")]
    asked = asyncio.create_task(service.answer(request("status", "getStatus", deadline_ms=60_000)))
    await asyncio.sleep(0)
    latest = collected("fatal", Level.FAILING)
    feed.collected()

    shown = [(each["result"]["verdict"]["level"], each["result"]["rows"][0]["state"]) for each in (before, await asked)]

    assert shown == [("ok", "running"), ("failing", "fatal")]


@pytest.mark.parametrize("params", [{"worker": "nobody"}, {"worker": 3}, {"limit": 3}, {"worker": "x" * 5000}])
async def test_an_invalid_parameter_is_rejected(service: MasterService, params: JsonObject) -> None:
    with pytest.raises(BadParams) as raised:
        await service.answer(request("kafka_lag", "getKafkaLag", **params))

    assert len(str(raised.value)) < 200


async def answer(request: Request, _caller: base.Caller) -> JsonObject:
    match request.rpc:
        case "refuses":
            raise BadParams("not like that")
        case "breaks":
            raise RuntimeError("/secret/path")
        case "path":
            raise PathError("/secret/path cannot be read")
        case "large":
            return reply_ok(request.id, {"text": "x" * (1 << 20)}, "master", 0.0)
        case "too_large":
            return reply_ok(request.id, {"text": "x" * MAX_REPLY_BYTES}, "master", 0.0)
    return reply_ok(request.id, {"rpc": request.rpc}, "master", 0.0)


class ServedMaster:
    large = encode({"role": 0, "rpc": "large", "method": "getX"})

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / "master.sock"
        self._loop, self._to_close = asyncio.new_event_loop(), ExitStack()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def serve(self, **limits: Any) -> None:
        self._server = ControlServer(answer, SocketLimits(**limits))
        self._run(self._server.start(self.path.parent))

    def connect(self) -> Caller:
        return self._to_close.enter_context(Caller(self.path))

    def stop(self) -> None:
        self._run(self._server.close())

    def is_answer(self, rpc: str, reply: Reply) -> bool:
        return bool(reply.result == {"rpc": rpc})

    def are_counted(self, *mistakes: str) -> bool:
        """The server counts no connections, but it drops a peer that does not read its reply."""
        return mistakes != ("a peer did not read its reply",) or len(self._server._connections) == 1

    def close(self) -> None:
        self._to_close.close()
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(30)


@pytest.fixture
def served(short_dir: Path) -> Iterator[ServedMaster]:
    with closing(ServedMaster(short_dir)) as made:
        yield made


class TestSocket(Sockets): ...


def test_a_failure_hides_its_cause_and_keeps_the_connection(served: ServedMaster) -> None:
    served.serve()
    caller = served.connect()

    for rpc, role, code in (
        ("ping", 9, "bad_request"),
        ("refuses", 0, "bad_params"),
        ("breaks", 0, "command_failed"),
        ("path", 0, "command_failed"),
        ("too_large", 0, "frame_too_large"),
    ):
        caller.send(encode({"id": "5", "role": role, "rpc": rpc, "method": "getX"}))
        failed = caller.read()
        assert failed.error is not None
        assert (failed.id, failed.error.code, caller.ask("ping").ok) == ("5", code, True), rpc
        assert "secret" not in failed.error.message
