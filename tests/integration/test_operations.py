"""Operations on a real master with stand-in workers: effects, answers, and what is kept and recorded."""

import json
import os
import pwd
import re
import signal
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import tomli_w

from kctl.config.load import read_document
from kctl.rpc.client import Reply
from tests.certificates import make_certificate
from tests.conftest import eventually
from tests.integration.conftest import Master, shared_master, write_secret
from tests.servers.kafka_broker import KafkaBroker

ME = pwd.getpwuid(os.getuid()).pw_name
WORKERS = ("worker-0", "worker-1", "worker-2")


@pytest.fixture(scope="module")
def fleet(broker: KafkaBroker) -> Iterator[Master]:
    with shared_master(broker, workers={"count": len(WORKERS)}) as one:
        yield one


def operation(fleet: Master, kind: str, **params: Any) -> dict[str, Any]:
    reply = fleet.ask(kind, **params)
    assert reply.ok, reply.error
    return reply.result


def refusal(fleet: Master, kind: str, **params: Any) -> str:
    reply: Reply = fleet.ask(kind, **params)
    assert reply.error is not None, reply.result
    return f"{reply.error.code}: {reply.error.message}"


def worker(fleet: Master, name: str) -> dict[str, Any]:
    return dict(fleet.ask("workers", worker=name).result["rows"][0])


@pytest.mark.shows("a pause survives restarts of worker and master, and is shown with its caller and time")
def test_a_pause_is_carried_out_kept_and_shown_until_it_is_resumed(master: Callable[..., Master]) -> None:
    fleet = master()

    paused = operation(fleet, "pause", topic="orders", partition=1)

    assert (paused["state"], paused["by"], paused["uid"]) == ("done", ME, os.getuid())
    assert paused["text"] == "orders-1 is paused; carried out by worker-0, worker-1"
    assert [worker(fleet, name)["state"] for name in ("worker-0", "worker-1")] == ["running", "paused"]
    log = fleet.log.read_text()
    assert f"action=operation id={paused['id']} by={ME} uid={os.getuid()} via=socket" in log
    assert f'outcome=done operation="pause topic orders partition 1": {paused["text"]}' in log
    [scope] = fleet.status()["worker-1"]["paused"]
    assert (scope["topic"], scope["partition"], scope["by"]) == ("orders", 1, ME)

    os.kill(fleet.status()["worker-1"]["pid"], signal.SIGKILL)
    eventually(lambda: (row := fleet.status()["worker-1"])["restarts"] == 1 and row["state"] == "running")
    assert worker(fleet, "worker-1")["state"] == "paused", "it outlives the worker"

    assert fleet.stop() == 0
    again = master()
    assert worker(again, "worker-1")["state"] == "paused", "and the master"
    assert operation(again, "resume", topic="orders")["text"] == "resumed: orders-1; carried out by worker-0, worker-1"
    assert worker(again, "worker-1")["state"] == "running"
    assert not (again.config.parent / "data" / "pauses.json").exists()


@pytest.mark.shows("stop, start, restart and drain of one process do not affect the others")
def test_stop_start_restart_and_drain_of_one_leave_the_others_alone(fleet: Master) -> None:
    other = fleet.status()["worker-1"]["pid"]

    assert re.match(r"worker-0 is stopped, after \d\.\d s", operation(fleet, "stop", name="worker-0")["text"])
    assert (fleet.status()["worker-0"]["desired"], fleet.status()["worker-0"]["state"]) == ("stopped", "stopped")
    started = operation(fleet, "start", name="worker-0")
    assert started["text"] == f"worker-0 runs as pid {fleet.status()['worker-0']['pid']}"

    begun = operation(fleet, "restart", name="worker-0")
    assert fleet.ended(begun)["text"] == "restarted: worker-0"
    assert fleet.status()["worker-0"]["restarts_by_cause"] == {"requested": 1}

    drained = fleet.ended(operation(fleet, "drain", name="worker-0"))
    assert drained["text"] == "worker-0 is drained and stopped"
    assert fleet.status()["worker-0"]["state"] == "stopped"
    assert fleet.status()["worker-0"]["paused"] == []
    assert fleet.status()["worker-1"]["pid"] == other
    operation(fleet, "start", name="worker-0")


def test_a_rolling_restart_takes_one_by_one_and_leaves_the_stopped_alone(fleet: Master) -> None:
    operation(fleet, "stop", name="worker-1")
    before = {name: row["pid"] for name, row in fleet.status().items()}

    done = fleet.ended(operation(fleet, "restart", all=True, rolling=True))

    assert done["text"] == "restarted: worker-0, worker-2"
    after = fleet.status()
    assert all(after[name]["pid"] not in (None, before[name]) for name in ("worker-0", "worker-2"))
    assert after["worker-1"]["state"] == "stopped"
    log = fleet.log.read_text()
    first, second = (log.index(f"action=stop worker={name} pid={before[name]}") for name in ("worker-0", "worker-2"))
    assert "action=running worker=worker-0" in log[first:second], "the next only when the one before has come up"
    operation(fleet, "start", name="worker-1")


NAMED: list[tuple[str, dict[str, Any]]] = [
    ("start", {}),
    ("stop", {}),
    ("restart", {}),
    ("drain", {}),
    ("log_level", {"level": "DEBUG"}),
    ("stack", {}),
]


@pytest.mark.shows("an unknown name is exit code 2 without an operation; the known ones are listed")
def test_an_unknown_name_is_wrong_usage_for_every_operation(fleet: Master) -> None:
    before = fleet.ask("operations", of_master=True).result["rows"]

    refusals = {kind: refusal(fleet, kind, name="nope", **params) for kind, params in NAMED}
    refusals |= {kind: refusal(fleet, kind, worker="nope") for kind in ("pause", "resume")}

    for kind, sentence in refusals.items():
        assert sentence.startswith("bad_params: there is no worker"), kind
        assert sentence.endswith(" nope; there are worker-0, worker-1, worker-2"), kind
    assert fleet.ask("operations", of_master=True).result["rows"] == before, "what was never begun is no operation"
    for words in ("start", "stop", "restart", "drain", "pause --worker", "stack", "rpc ping --worker"):
        reported = fleet.kctl(*words.split(), "nope")
        assert reported.returncode == 2, words
        assert "nope; there are worker-0, worker-1, worker-2" in reported.stderr, words


@pytest.mark.shows("an operation that failed or was cancelled changes nothing later")
def test_after_an_operation_is_reported_as_failed_nothing_of_it_happens(master: Callable[..., Master]) -> None:
    fleet = master(spark={"conf": {"KCTL_TEST_WORKER": "slow"}})

    def begun(kind: str, **params: Any) -> dict[str, Any]:
        return dict(fleet.ask(kind, timeout_seconds=0.4, **params).result)

    late = operation(fleet, "seek", topic="orders", to="7", deadline_seconds=0.7)
    assert (late["state"], late["deadline_seconds"]) == ("failed", 0.7)
    assert late["text"].startswith("not finished within 0.7 s; worker-")
    seek = begun("seek", topic="orders", partition=1, to="9")
    fleet.ask("cancel", id=seek["id"])
    assert fleet.ended(seek)["text"] == f"cancelled by {ME}"

    late = operation(fleet, "pause", all=True, deadline_seconds=0.7)
    assert (late["state"], late["text"][:27]) == ("failed", "not finished within 0.7 s; ")
    operation(fleet, "pause", topic="orders", partition=0)
    resume = begun("resume", all=True)
    fleet.ask("cancel", id=resume["id"])
    assert fleet.ended(resume)["state"] == "failed"

    # A second passes in each worker, long enough to run an operation that was dropped.
    operation(fleet, "pause", topic="orders", partition=0)
    assert [worker(fleet, name)["state"] for name in ("worker-0", "worker-1")] == ["paused", "running"]
    planned = operation(fleet, "seek", topic="orders", to="7", dry_run=True)
    assert [row["from"] for row in planned["result"]["rows"]] == [50, 50]


def test_log_level_reports_the_old_level_and_stack_shows_where_threads_stand(fleet: Master) -> None:
    assert "is not a position: use earliest" in operation(fleet, "seek", topic="orders", to="soon")["text"]
    assert operation(fleet, "log_level", name="worker-0", level="debug")["text"] == (
        "worker-0 logs DEBUG from now on; it was WARNING"
    )
    assert operation(fleet, "log_level", name="master", level="DEBUG")["result"]["before"] == "INFO"
    threads = {
        each["thread"]: each["stack"] for each in operation(fleet, "stack", name="worker-0")["result"]["threads"]
    }
    assert "stand_in_worker.py" in threads["MainThread"]
    assert {"kctl-agent worker-0", "kctl-parent-watch"} <= threads.keys()


def change(path: Path, **sections: dict[str, object]) -> None:
    document = read_document(path)
    for section, values in sections.items():
        document.setdefault(section, {}).update(values)
    path.write_text(tomli_w.dumps(document))


@pytest.mark.shows("a reload applies what it can and names the rest; a broken file changes nothing")
def test_a_reload_applies_what_it_can_and_names_the_rest(master: Callable[..., Master]) -> None:
    fleet = master(workers={"count": 1})
    change(
        fleet.config,
        workers={"count": 2, "stable_seconds": 3.0, "max_records_per_batch": 7},
        kafka={"group": "another"},
        log={"level": "WARNING"},
    )

    done = fleet.ended(operation(fleet, "reload"))

    reported = {effect: {change["setting"] for change in changes} for effect, changes in done["result"].items()}
    assert reported == {
        "now": {"workers.count", "workers.stable_seconds", "log.level"},
        "next_start": {"workers.max_records_per_batch"},
        "fleet": {"kafka.group"},
    }
    assert fleet.states() == ["running", "running"]
    assert "after `kctl restart worker-0 --rolling`: workers.max_records_per_batch " in done["text"]
    assert "; after `kctl stop` and `kctl start`: kafka.group " in done["text"]
    change(fleet.config, sinkers={"handler": "nobody:wrote"}, workers={"count": 1})
    refused = fleet.ended(operation(fleet, "reload"))
    assert (refused["state"], "there is no module nobody in" in refused["text"]) == ("failed", True)
    assert fleet.states() == ["running", "running"], "nothing was changed"
    change(fleet.config, sinkers={"handler": ""}, workers={"count": 2})
    again = fleet.ended(operation(fleet, "reload"))
    assert {each["setting"] for changes in again["result"].values() for each in changes} == {"kafka.group"}


OLD, NEW, READ = ({"Authorization": f"Bearer a-token-that-{kind}"} for kind in ("was-valid", "is-new", "may-read"))


def test_sighup_rotates_tokens_and_certificate(master: Callable[..., Master], short_dir: Path) -> None:
    def certify(name: str) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(make_certificate(short_dir, name)))

    def reload(outcome: str) -> str:
        known = len(reloads())
        fleet.process.send_signal(signal.SIGHUP)
        eventually(lambda: [each["state"] for each in reloads()[known:]] in (["done"], ["failed"]))
        row = reloads()[-1]
        assert row["state"] == outcome, row
        return str(row["text"])

    def reloads() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = fleet.ask("operations", of_master=True).result["rows"]
        return rows[::-1]

    def codes(trusted: ssl.SSLContext) -> list[int]:
        with httpx.Client(verify=trusted, base_url=fleet.about["http_url"]) as client:
            return [
                client.post("/api/v1/operations", json={"operation": "nothing"}, headers=each).status_code
                for each in (OLD, NEW, READ)
            ]

    tokens = write_secret(short_dir / "token", "a-token-that-was-valid\n")
    write_secret(short_dir / "read", "prometheus: a-token-that-may-read\n")
    first = certify("first")
    http = {"port": 0, "token_file": "token", "tls_certificate": "cert.pem", "tls_key": "key.pem"}
    fleet = master(http=http)
    assert codes(first) == [400, 401, 401]
    listener = httpx.Client(verify=first, base_url=fleet.about["http_url"], timeout=30)
    with listener, listener.stream("GET", "/api/v1/events", headers=OLD) as stream:
        lines = stream.iter_lines()
        assert next(lines)
        tokens.write_text("old: a-token-that-was-valid\nnew = a-token-that-is-new\n")
        change(fleet.config, http=http | {"read_token_file": "read"})
        assert "HTTP uses new tokens" in reload("done")
        assert list(lines) is not None, "a stream that an earlier token opened has ended"
    assert codes(first) == [400, 400, 403], "both are valid, and the scraper's cannot act"

    tokens.write_text("new = a-token-that-is-new\n")
    second = certify("second")
    assert "HTTP uses new tokens and certificate" in reload("done")
    assert codes(second) == [401, 400, 403]
    with pytest.raises(httpx.ConnectError):
        codes(first)

    tokens.write_text("short\n")
    assert "must contain one word" in reload("failed")
    (short_dir / "key.pem").write_text("no key")
    tokens.write_text("a-token-that-was-valid\n")
    assert "cannot be used with its key" in reload("failed")
    assert codes(second) == [401, 400, 403], "nothing has changed"
    assert "a-token-that" not in fleet.log.read_text()


def audit(fleet: Master) -> list[dict[str, Any]]:
    lines = (fleet.config.parent / "logs" / "operations.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["state"] != "running"]


@pytest.mark.shows("two fleets on one machine do not see each other")
def test_two_fleets_on_one_machine_do_not_see_each_other(fleet: Master, master: Callable[..., Master]) -> None:
    other = master(kafka={"group": fleet.config.parent.name})
    pids = {row["pid"] for row in fleet.status().values()}
    assert pids.isdisjoint(row["pid"] for row in other.status().values())

    operation(other, "pause", all=True)
    operation(other, "stop", name="worker-0")

    assert {worker(fleet, name)["state"] for name in WORKERS} == {"running"}
    assert {row["pid"] for row in fleet.status().values()} == pids
    assert other.stop() == 0
    assert set(fleet.states()) == {"running"}


@pytest.mark.shows("every operation has an answer, a deadline and an audit line; conflicting ones are rejected")
@pytest.mark.shows("HTTP runs the same operations with the token; each is an event and a metric")
def test_operations_over_http_need_the_token_and_are_the_same(master: Callable[..., Master], short_dir: Path) -> None:
    write_secret(short_dir / "token", "a-token-of-some-length\nci: another-token-of-some-length\n")
    write_secret(short_dir / "read", "a-token-that-may-read\n")
    http = {"token_file": "token", "read_token_file": "read"}
    fleet = master(http=http, spark={"conf": {"KCTL_TEST_WORKER": "slow"}})
    url = fleet.about["http_url"] + "/api/v1/operations"
    right = {"Authorization": "Bearer a-token-of-some-length"}

    with httpx.Client() as client:
        client.headers["Authorization"] = "Bearer a-token-that-may-read"
        done = client.post(url, json={"operation": "pause", "params": {"all": True}}, headers=right)
        assert (done.status_code, done.json()["state"], done.json()["by"]) == (200, "done", "http token")
        assert worker(fleet, "worker-0")["state"] == "paused"
        named = {"Authorization": "Bearer another-token-of-some-length"}
        done = client.post(url, json={"operation": "resume", "params": {"all": True}}, headers=named)
        assert (done.json()["state"], done.json()["by"]) == ("done", "http token ci")
        assert [line["by"] for line in audit(fleet)] == ["http token", "http token ci"]
        begun = client.post(url, json={"operation": "drain", "params": {"name": "worker-0"}}, headers=right)
        assert begun.status_code == 202
        again = client.post(url, json={"operation": "stop", "params": {"name": "worker-0"}}, headers=right)
        assert (again.status_code, again.json()["error"]["code"]) == (409, "operation_refused")
        eventually(lambda: client.get(f"{url}/{begun.json()['id']}").json()["state"] == "done")
        unknown = client.post(url, json={"operation": "stop", "params": {"name": "nobody"}}, headers=right)
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (400, "bad_params")
        failed = client.post(url, json={"operation": "resume", "params": {"topic": "orders"}}, headers=right)
        assert (failed.status_code, failed.json()["error"]["code"]) == (409, "operation_failed")
        wrong = client.post(url, json={"operation": "stop", "params": {"process": "worker-0"}}, headers=right)
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "bad_params")
        assert [row["operation"] for row in client.get(url).json()["rows"]] == ["resume", "drain", "resume", "pause"]

        def counted() -> set[str]:
            page = client.get(fleet.about["http_url"] + "/metrics").text
            return set(re.findall(r'kctl_operations_total\{.*operation="(\w+",outcome="\w+)"} 1', page))

        eventually(lambda: 'kind="operation"' in client.get(fleet.about["http_url"] + "/metrics").text)
        ended = {f'{kind}",outcome="done' for kind in ("pause", "resume", "drain")} | {'resume",outcome="failed'}
        eventually(lambda: counted() == ended)
