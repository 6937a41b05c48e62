"""Masters of one fleet on several hosts, with one broker."""

import os
import pwd
import re
import socketserver
import ssl
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx
import pytest

from kctl.hosts.membership import HostsMember
from kctl.hosts.roster import Host
from kctl.kafka.client.access import plain
from tests.certificates import expire, make_certificate
from tests.conftest import OUTLIVING, eventually, on_this_machine
from tests.integration.conftest import TOPIC, write_secret
from tests.integration.hosts import MISSED_WITHIN, Fleet, fleet
from tests.meanwhile import serving
from tests.servers.kafka_broker import KafkaBroker

__all__ = ["fleet"]

TRIO = {"a": (0, 2), "b": (2, 1), "c": (3, 1)}  # the first partition and the number of workers of each host


@pytest.fixture(scope="module")
def shared(broker: KafkaBroker) -> Iterator[Fleet]:
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as folder, closing(Fleet(Path(folder), broker)) as made:
        yield made


@pytest.fixture
def trio(shared: Fleet, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Hosts a, b and c with a worker for each partition. Unless a test fails, they keep running for the next test."""
    failed = request.session.testsfailed
    for name in TRIO:
        if name not in shared.masters or shared.masters[name].process.poll() is not None:
            start(shared, name)
    shared.await_all(*TRIO)
    yield shared
    if request.session.testsfailed > failed:
        shared.close()


def start(trio: Fleet, name: str) -> None:
    first_partition, workers = TRIO[name]
    master = trio.start(name, workers, env={"KCTL_TEST_FIRST_PARTITION": str(first_partition)})
    OUTLIVING.add(master.process.pid)


EVERYBODY = ["a/worker-0", "a/worker-1", "b/worker-0", "c/worker-0"]


@pytest.mark.shows("any master answers for all hosts")
def test_any_host_answers_for_all(trio: Fleet) -> None:
    for name in TRIO:
        status = trio.masters[name].ask("status", of_master=True)
        assert [row["name"] for row in status.result["rows"]] == EVERYBODY
        assert trio.names(name) == trio.names(name, "ping") == EVERYBODY
        offsets = trio.masters[name].ask("offset_checker")
        assert [row["partition"] for row in offsets.result["rows"]] == [0, 1, 2, 3]
        assert offsets.complete
    assert trio.names("a", host="b") == ["b/worker-0"]
    assert trio.names("a", worker="c/worker-0") == ["c/worker-0"]
    assert trio.names("b", local=True) == ["worker-0"]
    for name in TRIO:
        workers = trio.get(name, "workers")
        assert [(row["host"], row["name"]) for row in workers["rows"]] == [(each[0], each) for each in EVERYBODY]
        assert (workers["complete"], trio.get(name, "status")["verdict"]["level"]) == (True, "ok")
        lag = trio.get(name, "lag")
        assert [row["partition"] for row in lag["rows"]] == [0, 1, 2, 3]
        assert all((row["worker"] or "/").partition("/")[0] == (row["host"] or "") for row in lag["rows"])
    assert [row["name"] for row in trio.get("a", "workers?host=b")["rows"]] == ["b/worker-0"]
    assert [row["name"] for row in trio.get("b", "workers?local=1")["rows"]] == ["worker-0"]
    assert trio.kctl("b", "rpc", "ping").stdout.splitlines()[0].split() == ["host", "name", "pid", "version"]


@pytest.mark.shows("without a token, or with the read token, a caller can change nothing on any host")
def test_a_caller_without_the_token_can_neither_read_nor_change(trio: Fleet) -> None:
    url, trusted = trio.masters["a"].about["http_url"], ssl.create_default_context(cafile=trio.folder / "cert.pem")
    asked = ["hosts", "hosts/replies/workers", "hosts/replies/status", "workers", "status", "operations"]
    given = {"operation": "pause", "params": {"all": True, "host": "all"}, "caller": "root"}
    with httpx.Client(base_url=f"{url}/api/v1/", verify=trusted) as client:
        for headers in ({}, {"authorization": "Bearer made-up-by-a-stranger"}):
            answers = [client.get(path, headers=headers) for path in asked]
            answers.append(client.post("operations", json=given, headers=headers))
            assert {each.status_code for each in answers} == {401}
            assert not [each.text for each in answers if "worker-0" in each.text or "127.0.0.1" in each.text]
        read = {"authorization": f"Bearer {trio.token.read_text().strip()}"}
        assert {client.get(path, headers=read).status_code for path in asked} == {200}
        for path, body in (("operations", given), ("operations/1/cancel", {})):
            assert client.post(path, json=body, headers=read).status_code in (401, 403)
    assert not (trio.folder / "a" / "logs" / "operations.jsonl").exists()
    assert trio.is_well("a")


@pytest.mark.shows("operations reach one host or all, and both sides log them")
@pytest.mark.shows("the owners of its partitions run a seek; a dry run changes nothing")
def test_an_operation_goes_to_the_host_that_is_meant_and_to_all(trio: Fleet) -> None:
    pids = {name: trio.pid(name) for name in TRIO}
    assert "1 worker" in trio.kctl("b", "scale", "workers=3", "--host", "all", "--wait").stdout
    assert f"no worker owns {TOPIC}-1 now" in trio.failure("b", "seek", topic=TOPIC, to="7")

    restarted = trio.operate("a", "restart", name="worker-0", host="b")
    assert (restarted["state"], restarted["text"]) == ("done", "b: restarted: worker-0")
    assert trio.pid("b") != pids["b"]
    assert (trio.pid("a"), trio.pid("c")) == (pids["a"], pids["c"])

    for name in TRIO:
        paused = trio.operate(name, "pause", topic=TOPIC)  # a topic is read on all hosts
        assert paused["state"] == "done", paused
        assert list(paused["result"]["hosts"]) == ["a", "b", "c"]
        for other in TRIO:
            rows = trio.masters[other].ask("status", of_master=True, local=True).result["rows"]
            assert [scope["topic"] for row in rows for scope in row["paused"]] == [TOPIC]
        assert list(trio.operate(name, "resume", topic=TOPIC)["result"]["hosts"]) == ["a", "b", "c"]

    assert trio.kctl("a", "restart", "b/worker-0", "--wait").stdout == "b: restarted: worker-0\n"
    assert trio.kctl("b", "restart", "worker-0", "--host", "a", "--wait").stdout == "a: restarted: worker-0\n"
    refused = trio.kctl("a", "restart", "b/worker-0", "c/worker-0")
    assert (refused.returncode, refused.stderr) == (2, "kctl: name only processes of one host\n")

    scaled = trio.operate("c", "scale", workers=4, host="all")
    assert scaled["state"] == "done", scaled
    assert [len(each["running"]) for each in scaled["result"]["hosts"].values()] == [2, 1, 1]
    for name, to in (("b", "7"), ("c", "0=3,3=9")):
        planned = trio.operate(name, "seek", topic=TOPIC, to=to, dry_run=True)
        done = trio.operate(name, "seek", topic=TOPIC, to=to)
        assert planned["result"]["rows"] == done["result"]["rows"], (planned, done)
    rows = trio.operate("a", "seek", topic=TOPIC, to="20", dry_run=True)["result"]["rows"]
    assert [(row["host"], row["partition"], row["from"]) for row in rows] == [
        ("a", 0, 3),
        ("a", 1, 7),
        ("b", 2, 7),
        ("c", 3, 9),
    ]
    assert [row["to"] for row in trio.operate("a", "seek", topic=TOPIC, to="5", host="c")["result"]["rows"]] == [5]
    listed = trio.kctl("c", "operations")
    assert (listed.returncode, listed.stdout.split()[0]) == (0, "host")
    assert {line.split()[0] for line in listed.stdout.splitlines()[1:]} == {"a", "b", "c"}
    by = {(each["operation"], each["by"]) for each in trio.audit("b")}
    user = pwd.getpwuid(os.geteuid()).pw_name
    assert ("restart", f"http token hosts, for {user} on a") in by


def test_an_operation_that_hosts_do_not_support_is_rejected_and_changes_nothing(trio: Fleet) -> None:
    wrong = write_secret(trio.folder / "wrong-token", "a-token-that-nobody-knows\n")
    trio.start("d", workers=0, token_file=str(wrong), operations_token_file="")
    eventually(partial(trio.knows, "d", *TRIO), what="d does not know all")
    eventually(partial(trio.knows, "a", "d"), what="a does not know d")

    why = {str(each.sender): each.message for each in trio.masters["d"].ask("workers").failed}
    assert "is hosts.token_file a token of its http.read_token_file?" in why["a"]
    assert "there is no host e; there are a, b, c, d" in trio.refused("a", "pause", all=True, host="e")
    assert "drain is for one host at a time" in trio.refused("a", "drain", name="worker-0", host="all")
    assert "b: there is no worker or sinker worker-9" in trio.failure("a", "restart", name="worker-9", host="b")
    assert "a token is needed" in trio.failure("d", "restart", name="worker-0", host="a")
    trio.kill("d")
    assert "d: " in trio.failure("a", "restart", name="worker-0", host="d")
    eventually(partial(trio.misses, "a", "d"), what="d is not missed")
    assert "hosts are missing: d" in trio.failure("a", "pause", all=True, host="all")
    assert "hosts are missing: d" in trio.failure("a", "seek", topic=TOPIC, to="latest")
    assert trio.operate("a", "forget_host", name="d")["state"] == "done"


@pytest.mark.shows("a killed host is reported within 8 s, its last rows with their age")
def test_a_killed_host_is_missed_forgotten_and_comes_back(trio: Fleet) -> None:
    assert trio.names("a") == EVERYBODY
    started = time.monotonic()
    trio.kill("c")
    reply = trio.masters["a"].ask("workers")
    assert not reply.complete
    assert "host c has not answered since" in " ".join(each.message for each in reply.failed)
    assert reply.age_seconds is not None
    assert [row["name"] for row in reply.result["rows"]] == EVERYBODY
    assert trio.states("a")["c"] == "silent"
    for name in ("a", "b"):
        eventually(partial(trio.misses, name, "c"), what=f"{name} does not miss c")
    assert time.monotonic() - started < on_this_machine(MISSED_WITHIN + 1.0)  # two are asked, one after another
    shown = trio.kctl("a", "hosts")
    assert (shown.returncode, shown.stderr) == (3, "kctl: hosts are missing: c (gone)\n")
    assert [line.split()[:2] for line in shown.stdout.splitlines()[1:4]] == [
        ["a", "here"],
        ["b", "present"],
        ["c", "gone"],
    ]
    assert re.search(r"^c +worker-0 +running +unknown ", trio.kctl("a", "status").stdout, re.MULTILINE)
    over_http = trio.get("a", "workers")
    assert not over_http["complete"]
    assert "host c has left the group of masters" in " ".join(each["message"] for each in over_http["failed"])
    assert [row["host"] for row in over_http["rows"]] == ["a", "a", "b", "c"]
    of_a = trio.masters["a"].ask("status", of_master=True).result["verdict"]
    for verdict in (of_a, trio.get("b", "status")["verdict"]):  # others are about the offsets of stand-ins
        found = [each for each in (verdict, *verdict["also"]) if "host c" in each["reason"]]
        assert [each["level"] for each in found] == ["degraded"], verdict

    assert trio.operate("a", "forget_host", name="c")["state"] == "done"
    for name in ("a", "b"):
        eventually(lambda at=name: "c" not in trio.states(at), what=f"{name} still knows c")
        assert trio.masters[name].ask("workers").complete
    assert "host c is not gone" in trio.failure("a", "forget_host", name="c")

    start(trio, "c")
    trio.await_all(*TRIO)
    assert trio.masters["c"].stop() == 0
    eventually(lambda: trio.states("a") == {"a": "here", "b": "present"}, what="c is still there")
    assert trio.masters["a"].ask("workers").complete


@pytest.mark.shows("a stranger in the masters' group gets no token, regardless of its certificate")
def test_a_stranger_in_the_masters_group_is_sent_nothing(fleet: Fleet, tmp_path: Path) -> None:
    for kind in ("untrusted", "expired"):
        (tmp_path / kind).mkdir()
        make_certificate(tmp_path / kind)
    expire(tmp_path / "expired")
    with (fleet.folder / "cert.pem").open("a") as trusted:
        trusted.write((tmp_path / "expired" / "cert.pem").read_text())
    fleet.start("a")
    fleet.await_all("a")
    kinds = {"untrusted": tmp_path / "untrusted", "expired": tmp_path / "expired", "plain": None}
    with ExitStack() as stack:
        strangers = {kind: stack.enter_context(listener(folder)) for kind, folder in kinds.items()}
        for kind, (port, _) in strangers.items():
            scheme = "http" if kind == "plain" else "https"
            entry = Host(kind, f"{scheme}://127.0.0.1:{port}", time.time_ns())
            member = HostsMember(plain(fleet.broker.bootstrap_servers), fleet.masters_group, TOPIC, entry, 60.0)
            member.start()
            stack.callback(member.close)
        eventually(partial(fleet.knows, "a", *kinds), what="they are not on the roster")
        reply = fleet.masters["a"].ask("workers")
        for kind in kinds:
            fleet.failure("a", "restart", name="worker-0", host=kind)
    assert not reply.complete
    why = {str(each.sender): each.message for each in reply.failed}
    for kind, (_, received) in strangers.items():
        assert "nothing was sent" in why[kind]
        assert ("certificate has expired" in why[kind]) == (kind == "expired")
        for token in (fleet.token, fleet.operations_token):
            assert token.read_text().strip().rpartition(" ")[2].encode() not in bytes(received)
        assert not received.count(b"GET") + received.count(b"POST")


@contextmanager
def listener(folder: Path | None) -> Iterator[tuple[int, bytearray]]:
    """Yields the port and what is received there. With a `folder`, it uses TLS."""
    received, context = bytearray(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    over_tls = partial(context.wrap_socket, server_side=True)
    if folder is not None:
        context.load_cert_chain(folder / "server.pem")

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(5)
            with suppress(OSError), self.request if folder is None else over_tls(self.request) as peer:
                received.extend(peer.recv(65536))

    with serving(server := socketserver.TCPServer(("127.0.0.1", 0), Handler)):
        yield server.server_address[1], received
