import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from kctl import __version__
from kctl.cli.command import Command, CommandGroup, parsed
from kctl.cli.entry import _walked, tree
from kctl.config.sections import Config
from kctl.rows.advice import Advice, Answer, HotPartition, Outcome
from kctl_agent.errors import BadParams, NotPermitted
from kctl_agent.replies.encode import encoded
from kctl_agent.rpc.messages import reply_ok
from kctl_agent.rpc.wire import JsonObject, encode
from tests.command_lines import Kctl, Master
from tests.configurations import KAFKA
from tests.replies import status_json
from tests.servers.scripted_agent import Answers, BreaksFrame, Refuses, SendsBytes

WELL: dict[str, Any] = {
    "verdict": {"level": "ok", "about": "fleet", "reason": "everything is running; 2 ok", "since": 5.0, "also": []},
    "lag": {"total": 12, "unknown": 1, "seconds": 3.4, "worst": []}
    | {"behind_transaction": 4, "age_seconds": 13.0, "oldest_unhandled_seconds": 75.0},
}


@pytest.fixture
def config(short_dir: Path) -> Path:
    path = short_dir / "kctl.toml"
    path.write_text(KAFKA)
    return path


def test_help_is_shown_when_it_is_asked_for_and_when_nothing_is(kctl: Kctl) -> None:
    asked, word, nothing = kctl("--help"), kctl("help"), kctl()

    assert (asked.code, word.code, nothing.code) == (0, 0, 0)
    assert asked.out == word.out == nothing.out
    for group in ("storage", "storage dead", "config", "jars"):
        ran = kctl(*group.split())
        assert (ran.code, ran.out) == (2, ""), "a group without a command is wrong usage"
        assert ran.err.startswith(f"Usage: kctl {group} ")
    assert kctl("-x", "status").err.endswith("; see `kctl --help`\n")
    assert kctl("--version").out == f"kctl {__version__}\n"


def test_every_example_of_a_help_page_is_a_command_with_its_options() -> None:
    for example in examples_of(tree()):
        found = re.search(r"\bkctl ([^|]+)", example)
        assert found, example
        command, path, words = _walked(shlex.split(found[1]))
        assert isinstance(command, Command), example
        parsed(command, words, path)


def examples_of(node: Command | CommandGroup) -> Iterator[str]:
    yield from (line.partition("    ")[0] for line in node.examples.splitlines())
    for each in node.commands if isinstance(node, CommandGroup) else ():
        yield from examples_of(each)


@pytest.mark.shows("`./kctl.toml` is the default configuration")
def test_kctl_toml_of_the_folder_is_the_default(kctl: Kctl, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("start", "status"):
        ran = kctl(name, str(config))
        assert (ran.code, ran.err) == (2, f"kctl: kctl {name} does not accept {config}: did you mean -c {config}?\n")
    monkeypatch.chdir(config.parent)

    checked, asked = kctl("config", "check", "--offline"), kctl("status")

    assert (checked.code, checked.out) == (0, f"{config} can be used\n")
    assert (asked.code, str(config.parent) in asked.err) == (5, True)


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("resume", {}),
        ("resume -t orders -p 3", {"topic": "orders", "partition": 3}),
        ("pause -t orders", {"topic": "orders"}),
        ("seek -t orders -p 3 --to 1200 --yes", {"topic": "orders", "partition": 3, "to": "1200"}),
        ("restart worker-0 worker-1 --rolling --wait", {"name": "worker-0,worker-1", "rolling": True}),
        ("restart --all --wait", {"all": True}),
    ],
)
def test_words_become_parameters(kctl: Kctl, master: Master, words: str, given: object) -> None:
    rpc = words.split()[0]
    done = {"id": "1", "operation": rpc, "state": "done", "text": "done", "result": {"rows": [], "engine": False}}
    agent = master({rpc: [Answers(done)] * 2})

    assert kctl(*words.split()).code == 0

    assert [request.params for request in agent.requests if request.rpc == rpc][-1] == given
    for nothing_named in ("pause", "resume -p 3", "restart", "restart worker-0 --all"):
        assert kctl(*nothing_named.split()).code == 2


def test_an_engine_restart_is_named_and_asked_for(kctl: Kctl, master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "it would be: engine; the engine restarts first: no worker reads for about 5 s"
    planned = {"id": "1", "operation": "restart", "state": "done", "text": text, "result": {"engine": True}}
    agent = master({"restart": [Answers(planned)] * 4})

    script = kctl("restart", "--all", "--rolling")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stdin.readline", lambda: "n\n")
    refused = kctl("restart", "engine")
    preview = kctl("restart", "--all", "--dry-run")

    assert (script.code, script.err) == (0, f"{text}\n")
    assert (refused.code, refused.err) == (1, f"{text}\nDo it? [y/N] kctl: nothing was changed\n")
    assert (preview.code, preview.out) == (0, f"{text}\n")
    given = [request.params for request in agent.requests if request.rpc == "restart"]
    assert [each.get("dry_run", False) for each in given] == [True, False, True, True]


def test_a_fleet_that_nothing_names_is_not_stopped(kctl: Kctl, master: Master, short_dir: Path) -> None:
    master({})

    refused = kctl("stop")

    advice = f"to stop orders, use `kctl stop -c {short_dir}/kctl.toml`"
    assert (refused.code, refused.err) == (2, f"kctl: nothing here names a fleet: {advice}\n")


def test_the_engines_of_all_hosts_are_named_before_a_restart_of_all(kctl: Kctl, master: Master) -> None:
    planned = {"id": "1", "operation": "restart", "state": "running", "text": ""}
    hosts = {"node-1": {"engine": False}, "node-2": {"engine": True}}
    plan = {**planned, "state": "done", "text": "node-2: it would be: engine", "result": {"hosts": hosts}}
    done = {**planned, "state": "done", "text": "restarted", "result": {}}
    agent = master({"restart": [Answers(planned), Answers(done)], "operation": [Answers(plan)]})

    ran = kctl("restart", "--all", "--host", "all", "--wait")

    assert (ran.code, ran.out, ran.err) == (0, "restarted\n", "node-2: it would be: engine\n")
    assert [request.rpc for request in agent.requests] == ["restart", "operation", "restart"]


def test_a_defect_is_one_sentence_and_no_traceback(kctl: Kctl, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_config: Config, _path: Path, **_: object) -> int:
        raise RuntimeError("impossible")

    monkeypatch.setattr("kctl.start.master.run", run)

    ran = kctl("start", "-c", str(config))

    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert ran.err.startswith("kctl: a defect in kctl, RuntimeError: impossible; ")


def test_config_show_prints_settings_and_sources(kctl: Kctl, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCTL_HTTP_PORT", "0")

    table, document, yaml_ = (
        kctl("config", "show", "-c", str(config), "--set", "workers.count=2", *words)
        for words in ((), ("-o", "json"), ("-o", "yaml"))
    )

    lines = {line.split()[0]: line.split()[1:] for line in table.out.splitlines()}
    assert lines["setting"] == ["value", "from"]
    assert lines["kafka.group"] == ['"g"', "file"]
    assert lines["http.port"] == ["0", "KCTL_HTTP_PORT"]
    assert lines["workers.count"] == ["2", "flag"]
    assert lines["fleet.run_dir"] == [f'"{config.parent / "run"}"', "default"]
    assert (document.document["kafka"]["topics"], yaml.safe_load(yaml_.out)) == (["t"], document.document)


@pytest.mark.parametrize(
    ("level", "fail_on", "code"),
    [
        ("ok", "degraded", 0),
        ("degraded", "degraded", 1),
        ("degraded", "failing", 0),
        ("unknown", "failing", 1),
        ("failing", "failing", 1),
    ],
)
def test_status_begins_with_the_verdict(kctl: Kctl, master: Master, level: str, fail_on: str, code: int) -> None:
    why, also = {**WELL["verdict"], "level": level, "reason": "no broker"}, {**WELL["verdict"], "level": "degraded"}
    master({"status": Answers({"rows": [status_json()], **WELL, "verdict": {**why, "also": [also]}})})

    ran = kctl("status", "--fail-on", fail_on)

    assert ran.code == code
    lag = "lag 12 without 1 partition of unknown lag  behind open transactions 4  time lag 3s  oldest unhandled 1m15s"
    assert ran.out.startswith(f"{level}: no broker\n  and degraded: everything is running; 2 ok\n{lag}  age 13s\n")
    assert ran.err == (f"kctl: {level}: no broker\n" if code else "")


def incomplete(result: JsonObject, name: str) -> SendsBytes:
    missing = {"from": name, "code": "timeout", "message": "no answer in time"}
    return SendsBytes(encode(reply_ok("1", result, "master", 0.2, complete=False, asked=[name], failed=[missing])))


def test_status_exits_by_who_is_missing(kctl: Kctl, master: Master) -> None:
    nobody = kctl("status")
    agent = master({"status": incomplete({"rows": [status_json()], **WELL}, "worker-0")})
    partly = kctl("status")
    agent.vanish()
    left_behind = kctl("status")

    assert [ran.code for ran in (nobody, partly, left_behind)] == [5, 3, 5]
    assert "worker-0 (timeout: no answer in time)" in partly.err
    assert "no process listens" in left_behind.err


def test_start_in_the_background_writes_its_log_through_no_link(kctl: Kctl, config: Path) -> None:
    log = config.parent / "logs" / "master.log"
    log.parent.mkdir()
    log.symlink_to(config.parent / "target")

    ran = kctl("start", "--daemon", "-c", str(config))

    assert (ran.code, "logs/master.log cannot be written (it is a symbolic link)" in ran.err) == (14, True), ran.err
    assert not (config.parent / "target").exists()


def test_a_seek_goes_to_the_offsets_shown(kctl: Kctl, master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"topic": "orders", "partition": 0, "from": 1200, "to": 3, "skipped": 0, "again": 1197},
        {"topic": "orders", "partition": 11, "from": None, "to": 0, "skipped": 0, "again": 0},
    ]
    table = [
        "topic   partition  from  to  skipped  again",
        "orders          0  1200   3        0   1197",
        "orders         11     -   0        0      0",
    ]
    operation = {"id": "1", "operation": "seek", "params": {}, "state": "done", "text": "", "result": {"rows": rows}}
    agent = master({"seek": [Answers(operation)] * 5})

    planned = kctl("seek", "--topic", "orders", "--to", "earliest", "--dry-run")
    asked = kctl("seek", "--topic", "orders", "--to", "earliest")
    done = kctl("seek", "--topic", "orders", "--to", "earliest", "--yes")

    assert (planned.code, planned.out.splitlines()) == (0, table)
    assert asked.err.splitlines()[:3] == table, "what would be done is shown before the question"
    assert (done.code, done.out.splitlines()) == (0, table)

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stdin.readline", lambda: "y\n")

    assert kctl("seek", "--topic", "orders", "--to", "latest").code == 0

    assert [request.params for request in agent.requests if request.rpc == "seek"][-2:] == [
        {"topic": "orders", "to": "latest", "dry_run": True},
        {"topic": "orders", "to": "0=3,11=0"},
    ]


def test_what_may_still_happen_exits_with_3_and_shows_what_became_of_it(kctl: Kctl, master: Master) -> None:
    operation = {"id": "1", "operation": "stop", "state": "unknown", "text": "it may still happen: x", "result": {}}
    failed = {**operation, "state": "failed", "text": "cancelled by ann"}
    master({"stop": Answers(operation), "cancel": Answers({}), "operation": Answers(failed)})

    stopped = kctl("stop", "worker-0")
    cancelled = kctl("operation", "1", "--cancel")
    in_json = kctl("operation", "1", "--cancel", "-o", "json")

    assert (stopped.code, stopped.err) == (3, "kctl: operation 1, stop: it may still happen: x\n")
    assert (cancelled.code, cancelled.out) == (0, "operation 1 has ended: cancelled by ann\n")
    assert (in_json.code, json.loads(in_json.out)) == (0, failed)


KEEP = Advice(Answer.KEEP, "it fits", 4, 2, workers=4, needed=4, sinkers=2, since=1.0, arrivals_per_second=9.6)
HOT = replace(KEEP, answer=Answer.HOT, reason="orders-3 alone", hot=(HotPartition("orders", 3, 1.42),))


@pytest.mark.shows("`kctl advise` answers in one line, with exit code 0 keep, 1 another answer, 3 unknown")
@pytest.mark.parametrize(
    ("advice", "code", "first"),
    [
        (KEEP, 0, "keep: it fits"),
        (replace(KEEP, answer=Answer.WORKERS, workers=6), 1, "workers 4 -> 6: it fits"),
        (replace(KEEP, answer=Answer.SINKERS, sinkers=3), 1, "sinkers 2 -> 3: it fits"),
        (HOT, 1, "hot: orders-3 alone"),
        (Advice.unknown("the group is rebalancing", 4), 3, "unknown: the group is rebalancing"),
    ],
)
def test_the_answer_comes_first(kctl: Kctl, master: Master, advice: Advice, code: int, first: str) -> None:
    master({"advice": Answers(encoded(advice))})

    ran = kctl("advise")

    assert (ran.code, ran.out.splitlines()[0], ran.err) == (code, first, "")


def test_numbers_hot_partitions_and_the_last_outcome_follow(kctl: Kctl, master: Master) -> None:
    master({"advice": Answers(encoded(replace(HOT, outcome=Outcome(1, "2 -> 4 worked as expected", is_met=True))))})

    table, document = kctl("advise"), kctl("advise", "-o", "json")

    assert table.out.splitlines()[1:] == [
        "since 1970-01-01T00:00:01Z  needed 4  hosts -  arrivals/s 10  capacity/s -",
        "hot: orders-3 needs 1.4 workers",
        "2 -> 4 worked as expected",
    ]
    assert json.loads(document.out)["hot"] == [{"topic": "orders", "partition": 3, "workers": 1.42}]


LAG = {"total": 62, "unknown": [], "topics": {"orders": 60, "payments": 2}}


def test_a_question_has_timeout_and_worker_and_its_answer_an_age_and_code(kctl: Kctl, master: Master) -> None:
    lacking = incomplete(LAG, "worker-1")
    agent = master({"workers": Answers({"rows": []}), "kafka_lag": [Answers(LAG, age_seconds=75.0), lacking, lacking]})

    assert kctl("rpc", "workers", "--worker", "worker-0", "--timeout", "0.5").code == 0
    assert (agent.requests[0].params, agent.requests[0].deadline_ms) == ({"worker": "worker-0"}, 500)
    assert kctl("rpc", "kafka_lag").out.splitlines()[-1] == "age: 1m15s"
    assert kctl("rpc", "kafka_lag", "--fail-above", "61").code == 4, "the threshold outweighs what is missing"
    assert kctl("rpc", "kafka_lag", "--fail-above", "62").code == 3


def test_each_failure_of_a_master_has_its_exit_code_and_one_sentence(kctl: Kctl, master: Master) -> None:
    denied = Refuses(NotPermitted("this socket serves its own user and root only"))
    breaks_off = BreaksFrame(LAG), SendsBytes(b"\x00\x00\x00\x03abc")
    unknown = Refuses(BadParams("there is no worker of that name; there are worker-0"))
    master({"kafka_lag": [denied, *breaks_off, Answers({"topics": 7})], "workers": unknown})

    refused, *broken, odd = (kctl("rpc", "kafka_lag") for _ in range(4))
    nobody = kctl("rpc", "workers", "--worker", "nobody")

    assert (refused.code, "does not allow" in refused.err) == (5, True)
    assert [ran.code for ran in broken] == [1, 1]
    assert (odd.code, odd.err.count("\n"), "Traceback" in odd.err) == (1, 1, False)
    shape = "the master's answer to kafka_lag does not have the expected fields: Expected `object`, got `int`"
    assert odd.err.startswith(f"kctl: {shape}")
    assert (nobody.code, nobody.err) == (2, "kctl: workers: there is no worker of that name; there are worker-0\n")


def test_a_traceback_is_shown_on_request(kctl: Kctl, master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    with_option = kctl("--debug", "rpc", "kafka_lag")
    monkeypatch.setenv("KCTL_DEBUG", "1")
    with_variable = kctl("rpc", "kafka_lag")

    assert [("Traceback" in ran.err, ran.code) for ran in (with_option, with_variable)] == [(True, 5)] * 2


def test_the_configuration_may_be_named_before_or_after_the_command_or_by_variable(
    kctl: Kctl, master: Master, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_dir: Path
) -> None:
    master({"kafka_lag": Answers(LAG)})
    named = str(short_dir / "kctl.toml")
    absent = str(tmp_path / "absent.toml")

    for words in (("-c", named), (f"-c{named}",), (f"--config={named}",), ("--config", named)):
        assert kctl(*words, "rpc", "kafka_lag").code == 0
    assert kctl("-c", absent, "rpc", "kafka_lag", "-c", named).code == 0
    monkeypatch.setenv("KCTL_CONFIG", absent)
    assert kctl("rpc", "kafka_lag").code == 2
    assert kctl("rpc", "kafka_lag", "-c", named).code == 0
