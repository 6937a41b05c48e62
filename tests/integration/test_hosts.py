"""Masters of one fleet on several hosts, with one broker."""

from __future__ import annotations

import os
import pwd
import re
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from kctl.hosts.membership import HostsMember
from kctl.hosts.roster import Host
from kctl.kafka.client.access import plain
from tests.certificates import expire, make_certificate
from tests.conftest import eventually, on_this_machine
from tests.integration.conftest import TOPIC
from tests.integration.hosts import MISSED_WITHIN, Fleet
from tests.servers.kafka_broker import KafkaBroker


@pytest.fixture
def fleet(short_dir: Path, broker: KafkaBroker) -> Iterator[Fleet]:
    made = Fleet(short_dir, broker)
    yield made
    made.end()


@pytest.mark.shows("any master answers for all hosts")
def test_any_host_answers_for_all(fleet: Fleet) -> None:
    fleet.start("a", workers=2)
    fleet.start("b", workers=1)
    fleet.start("c", workers=1)
    fleet.await_all("a", "b", "c")

    everybody = ["a/worker-0", "a/worker-1", "b/worker-0", "c/worker-0"]
    for name in ("a", "b", "c"):
        status = fleet.masters[name].ask("status", of_master=True)
        assert [row["name"] for row in status.result["rows"]] == everybody
        assert fleet.names(name) == fleet.names(name, "ping") == everybody
        offsets = fleet.masters[name].ask("offset_checker")
        assert [row["partition"] for row in offsets.result["rows"]] == [0, 1, 2, 3]
        assert offsets.complete
    assert fleet.names("a", host="b") == ["b/worker-0"]
    assert fleet.names("a", worker="c/worker-0") == ["c/worker-0"]
    assert fleet.names("b", local=True) == ["worker-0"]
    for name in ("a", "b", "c"):
        workers = fleet.get(name, "workers")
        assert [(row["host"], row["name"]) for row in workers["rows"]] == [(each[0], each) for each in everybody]
        assert (workers["complete"], fleet.get(name, "status")["verdict"]["level"]) == (True, "ok")
        lag = fleet.get(name, "lag")
        assert [row["partition"] for row in lag["rows"]] == [0, 1, 2, 3]
        assert all((row["worker"] or "/").partition("/")[0] == (row["host"] or "") for row in lag["rows"])
    assert [row["name"] for row in fleet.get("a", "workers?host=b")["rows"]] == ["b/worker-0"]
    assert [row["name"] for row in fleet.get("b", "workers?local=1")["rows"]] == ["worker-0"]
    assert fleet.kctl("b", "rpc", "ping").stdout.splitlines()[0].split() == ["host", "name", "pid", "version"]


@pytest.mark.shows("a killed host is reported within 8 s, its last rows with their age")
def test_a_killed_host_is_missed_forgotten_and_comes_back(fleet: Fleet) -> None:
    fleet.start("a")
    fleet.start("b")
    fleet.start("c", workers=2)
    fleet.await_all("a", "b", "c")
    everybody = ["a/worker-0", "b/worker-0", "c/worker-0", "c/worker-1"]
    assert fleet.names("a") == everybody

    started = time.monotonic()
    fleet.kill("c")
    reply = fleet.masters["a"].ask("workers")
    assert not reply.complete
    assert "host c has not answered since" in " ".join(each.message for each in reply.failed)
    assert reply.age_seconds is not None
    assert [row["name"] for row in reply.result["rows"]] == everybody
    assert fleet.states("a")["c"] == "silent"
    for name in ("a", "b"):
        eventually(partial(fleet.misses, name, "c"), what=f"{name} does not miss c")
    assert time.monotonic() - started < on_this_machine(MISSED_WITHIN + 1.0)  # two are asked, one after another
    shown = fleet.kctl("a", "hosts")
    assert (shown.returncode, shown.stderr) == (3, "kctl: not all hosts are there: c (gone)\n")
    assert [line.split()[:2] for line in shown.stdout.splitlines()[1:4]] == [
        ["a", "here"],
        ["b", "present"],
        ["c", "gone"],
    ]
    assert re.search(r"^c +worker-0 +running +unknown ", fleet.kctl("a", "status").stdout, re.MULTILINE)
    over_http = fleet.get("a", "workers")
    assert not over_http["complete"]
    assert "host c has left the group of masters" in " ".join(each["message"] for each in over_http["failed"])
    assert [row["host"] for row in over_http["rows"]] == ["a", "b", "c", "c"]
    assert fleet.get("b", "status")["verdict"]["level"] == "degraded"
    verdict = fleet.masters["a"].ask("status", of_master=True).result["verdict"]
    assert verdict["level"] == "degraded"
    assert "host c" in verdict["reason"]

    assert fleet.operate("a", "forget_host", name="c")["state"] == "done"
    for name in ("a", "b"):
        eventually(partial(fleet.knows_none, name, "c"), what=f"{name} still knows c")
        assert fleet.masters[name].ask("workers").complete
    assert "no host c has gone" in fleet.failure("a", "forget_host", name="c")

    fleet.start("c", workers=2)
    fleet.await_all("a", "b", "c")
    assert fleet.masters["c"].stop() == 0
    eventually(lambda: fleet.states("a") == {"a": "here", "b": "present"}, what="c is still there")
    assert fleet.masters["a"].ask("workers").complete


def test_a_frozen_host_is_silent_then_gone_then_well(fleet: Fleet) -> None:
    fleet.start("a")
    fleet.start("b")
    fleet.await_all("a", "b")

    os.kill(fleet.masters["b"].process.pid, signal.SIGSTOP)
    assert not fleet.masters["a"].ask("workers", timeout_seconds=1.0).complete
    assert fleet.states("a")["b"] == "silent"
    eventually(lambda: fleet.states("a")["b"] == "gone", what="b is not missed")
    os.kill(fleet.masters["b"].process.pid, signal.SIGCONT)

    eventually(lambda: fleet.states("a")["b"] == "present", what="b is silent, though nobody has asked it")
    fleet.await_all("a", "b")


@pytest.mark.shows("operations reach one host or all, and both sides log them")
def test_an_operation_goes_to_the_host_that_is_meant_and_to_all(fleet: Fleet) -> None:
    for name, first_partition in (("a", 0), ("b", 2), ("c", 3)):
        fleet.start(name, prefix=["env", f"KCTL_TEST_FIRST_PARTITION={first_partition}"])
    fleet.await_all("a", "b", "c")
    pids = {name: fleet.pid(name) for name in ("a", "b", "c")}
    assert f"no worker owns {TOPIC}-1 now" in fleet.failure("b", "seek", topic=TOPIC, to="7")

    restarted = fleet.operate("a", "restart", name="worker-0", host="b")
    assert (restarted["state"], restarted["text"]) == ("done", "b: restarted: worker-0")
    assert fleet.pid("b") != pids["b"]
    assert (fleet.pid("a"), fleet.pid("c")) == (pids["a"], pids["c"])

    for name in ("a", "b", "c"):
        paused = fleet.operate(name, "pause", topic=TOPIC)  # a topic is read on all hosts
        assert paused["state"] == "done", paused
        assert list(paused["result"]["hosts"]) == ["a", "b", "c"]
        for other in ("a", "b", "c"):
            rows = fleet.masters[other].ask("status", of_master=True, local=True).result["rows"]
            assert [scope["topic"] for row in rows for scope in row["paused"]] == [TOPIC]
        assert list(fleet.operate(name, "resume", topic=TOPIC)["result"]["hosts"]) == ["a", "b", "c"]

    assert fleet.kctl("a", "restart", "b/worker-0", "--wait").stdout == "b: restarted: worker-0\n"
    assert fleet.kctl("b", "restart", "worker-0", "--host", "a", "--wait").stdout == "a: restarted: worker-0\n"
    assert "1 worker" in fleet.kctl("b", "scale", "workers=3", "--host", "all", "--wait").stdout
    refused = fleet.kctl("a", "restart", "b/worker-0", "c/worker-0")
    assert (refused.returncode, refused.stderr) == (2, "kctl: name processes of one host at a time\n")

    scaled = fleet.operate("c", "scale", workers=4, host="all")
    assert scaled["state"] == "done", scaled
    assert [len(each["running"]) for each in scaled["result"]["hosts"].values()] == [2, 1, 1]
    for name, to in (("b", "7"), ("c", "0=3,3=9")):
        planned = fleet.operate(name, "seek", topic=TOPIC, to=to, dry_run=True)
        done = fleet.operate(name, "seek", topic=TOPIC, to=to)
        assert planned["result"]["rows"] == done["result"]["rows"], (planned, done)
    rows = fleet.operate("a", "seek", topic=TOPIC, to="20", dry_run=True)["result"]["rows"]
    assert [(row["host"], row["partition"], row["from"]) for row in rows] == [
        ("a", 0, 3),
        ("a", 1, 7),
        ("b", 2, 7),
        ("c", 3, 9),
    ]
    assert [row["to"] for row in fleet.operate("a", "seek", topic=TOPIC, to="5", host="c")["result"]["rows"]] == [5]
    listed = fleet.kctl("c", "operations")
    assert (listed.returncode, listed.stdout.split()[0]) == (0, "host")
    assert {line.split()[0] for line in listed.stdout.splitlines()[1:]} == {"a", "b", "c"}
    by = {(each["operation"], each["by"]) for each in fleet.audit("b")}
    user = pwd.getpwuid(os.geteuid()).pw_name
    assert ("restart", f"http token hosts, for {user} on a") in by


def test_an_operation_that_hosts_do_not_support_is_rejected_and_changes_nothing(fleet: Fleet) -> None:
    fleet.start("a")
    fleet.start("b", operations_token_file="")
    fleet.await_all("a", "b")

    assert "there is no host d; there are a, b" in fleet.refused("a", "pause", all=True, host="d")
    assert "drain is for one host at a time" in fleet.refused("a", "drain", name="worker-0", host="all")
    assert "b: there is no worker or sinker worker-9" in fleet.failure("a", "restart", name="worker-9", host="b")
    assert "a token is needed" in fleet.failure("b", "restart", name="worker-0", host="a")
    fleet.kill("b")
    assert "b: " in fleet.failure("a", "restart", name="worker-0", host="b")
    eventually(partial(fleet.misses, "a", "b"), what="b is not missed")
    assert "not all hosts are there: b" in fleet.failure("a", "pause", all=True, host="all")
    assert "not all hosts are there: b" in fleet.failure("a", "seek", topic=TOPIC, to="latest")


@pytest.mark.shows("a stranger in the masters' group gets no token, regardless of its certificate")
@pytest.mark.parametrize("kind", ["https", "http", "expired"])
def test_a_stranger_in_the_masters_group_is_sent_nothing(fleet: Fleet, kind: str, tmp_path: Path) -> None:
    if kind != "http":
        make_certificate(tmp_path)
    if kind == "expired":
        expire(tmp_path)
        with (fleet.folder / "cert.pem").open("a") as trusted:
            trusted.write((tmp_path / "cert.pem").read_text())
    fleet.start("a")
    fleet.await_all("a")
    with Listener(None if kind == "http" else tmp_path) as stranger:
        scheme = "http" if kind == "http" else "https"
        entry = Host("stranger", f"{scheme}://127.0.0.1:{stranger.port}", time.time_ns())
        member = HostsMember(plain(fleet.broker.bootstrap_servers), fleet.masters_group, TOPIC, entry, 60.0)
        member.start()
        try:
            eventually(lambda: "stranger" in fleet.states("a"), what="it is not on the roster")
            reply = fleet.masters["a"].ask("workers")
            fleet.failure("a", "restart", name="worker-0", host="stranger")
        finally:
            member.close()
    assert not reply.complete
    why = " ".join(each.message for each in reply.failed)
    assert "nothing was sent" in why
    assert ("certificate has expired" in why) == (kind == "expired")
    for token in (fleet.token, fleet.operations_token):
        assert token.read_text().strip().rpartition(" ")[2].encode() not in bytes(stranger.received)
    assert not stranger.received.count(b"GET") + stranger.received.count(b"POST")


@pytest.mark.shows("without a token, or with the read token, a caller can change nothing on any host")
def test_a_caller_without_the_token_can_neither_read_nor_change(fleet: Fleet) -> None:
    fleet.start("a")
    fleet.await_all("a")
    url, trusted = fleet.masters["a"].about["http_url"], ssl.create_default_context(cafile=fleet.folder / "cert.pem")
    asked = ["hosts", "hosts/replies/workers", "hosts/replies/status", "workers", "status", "operations"]
    given = {"operation": "pause", "params": {"all": True, "host": "all"}, "caller": "root"}
    with httpx.Client(base_url=f"{url}/api/v1/", verify=trusted) as client:
        for headers in ({}, {"authorization": "Bearer made-up-by-a-stranger"}):
            answers = [client.get(path, headers=headers) for path in asked]
            answers.append(client.post("operations", json=given, headers=headers))
            assert {each.status_code for each in answers} == {401}
            assert not [each.text for each in answers if "worker-0" in each.text or "127.0.0.1" in each.text]
        read = {"authorization": f"Bearer {fleet.token.read_text().strip()}"}
        assert {client.get(path, headers=read).status_code for path in asked} == {200}
        for path, body in (("operations", given), ("operations/1/cancel", {})):
            assert client.post(path, json=body, headers=read).status_code in (401, 403)
    assert not (fleet.folder / "a" / "logs" / "operations.jsonl").exists()
    assert fleet.is_well("a")


@pytest.mark.shows("a host with another protocol is reported during a rolling upgrade")
def test_a_rolling_upgrade_names_the_host_of_another_protocol(fleet: Fleet) -> None:
    fleet.start("a")
    fleet.start("b")
    fleet.await_all("a", "b")

    newer = fleet.start("c", prefix=["env", "PROTOCOLS=2-3"])
    for name in ("a", "b"):
        eventually(partial(fleet.refuses, name, "c"), what=f"{name} does not refuse c")
        failed = {str(each.sender): each.message for each in fleet.masters[name].ask("workers").failed}
        assert failed == {"c": "host c does not count: it speaks protocols 2 to 3, most hosts 1"}
        assert fleet.names(name) == ["a/worker-0", "b/worker-0"]
        assert "not all hosts are there: c" in fleet.failure(name, "pause", all=True, host="all")
    of_newer = eventually(lambda: newer.ask("workers").failed, what="c counts itself")
    assert "it speaks protocols 2 to 3" in " ".join(each.message for each in of_newer)
    assert newer.stop() == 0

    for name, protocol in (("c", 1), ("b", 1), ("a", 2)):  # one after another, and each still speaks the old version
        if name != "c":
            assert fleet.masters[name].stop() == 0
        fleet.start(name, prefix=["env", "PROTOCOLS=1-2"])
        fleet.await_all("a", "b", "c")
        eventually(partial(fleet.speaks, name, protocol), what=f"not all speak {protocol}")
    for name in ("a", "b", "c"):
        assert "Traceback" not in fleet.masters[name].log.read_text()


def test_a_wrong_token_is_named(fleet: Fleet) -> None:
    fleet.start("a")
    wrong = fleet.folder / "wrong-token"
    wrong.write_text("a-token-that-nobody-knows\n")
    wrong.chmod(0o600)
    fleet.start("b", token_file=str(wrong))
    eventually(lambda: set(fleet.states("b")) == {"a", "b"}, what="b does not know a")

    why = {str(each.sender): each.message for each in fleet.masters["b"].ask("workers").failed}

    assert "is hosts.token_file a token of its http.read_token_file?" in why["a"]


class Listener(threading.Thread):
    def __init__(self, folder: Path | None) -> None:
        super().__init__(daemon=True)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.received = bytearray()
        self._context = None
        if folder is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(folder / "server.pem")

    def __enter__(self) -> Listener:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self.join(10)
        self._socket.close()

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            try:
                connection.settimeout(5)
                if self._context is not None:
                    connection = self._context.wrap_socket(connection, server_side=True)
                self.received += connection.recv(65536)
            except OSError:
                pass
            finally:
                connection.close()
