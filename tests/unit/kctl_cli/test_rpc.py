from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kctl_agent.errors import BadParams, NotPermitted
from kctl_agent.rpc.messages import reply_ok
from kctl_agent.rpc.wire import encode
from tests.command_lines import Kctl, Master
from tests.servers.scripted_agent import Answers, BreaksFrame, Refuses, SendsBytes, Stalls

LAG = {"total": 62, "unknown": [], "topics": {"orders": 60, "payments": 2}}


def test_trouble_of_a_fleet_is_a_line_on_stderr_and_a_field_of_json(kctl: Kctl, master: Master) -> None:
    verdict = {
        "level": "failing",
        "about": "brokers",
        "reason": "no Kafka broker has answered",
        "since": 1.0,
        "also": [],
    }
    completeness = {"complete": True, "asked": [], "answered": [], "failed": [], "verdict": verdict}
    master({"kafka_lag": SendsBytes(encode(reply_ok("1", LAG, "master", 0.2, **completeness)))})

    ran, document = kctl("rpc", "kafka_lag"), kctl("rpc", "kafka_lag", "-o", "json")

    assert (ran.code, ran.err) == (0, "kctl: the fleet is failing: no Kafka broker has answered\n")
    assert (json.loads(document.out)["verdict"], document.err) == (verdict, ran.err)


def test_timeout_and_worker_travel_with_the_question(kctl: Kctl, master: Master) -> None:
    agent = master({"workers": Answers({"rows": []})})

    assert kctl("rpc", "workers", "--worker", "worker-0", "--timeout", "0.5").code == 0

    assert (agent.requests[0].params, agent.requests[0].deadline_ms) == ({"worker": "worker-0"}, 500)


def test_an_incomplete_answer_exits_3(kctl: Kctl, master: Master, incomplete: Callable[..., SendsBytes]) -> None:
    master({"kafka_lag": incomplete(LAG, "worker-1", "worker-2")})

    ran = kctl("rpc", "kafka_lag")

    assert ran.code == 3
    assert "total      62" in ran.out
    assert ran.err == (
        "kctl: 2 of 3 did not answer: worker-1 (timeout: no answer in time), worker-2 (timeout: no answer in time)\n"
    )


def test_threshold_outweighs_incomplete(kctl: Kctl, master: Master, incomplete: Callable[..., SendsBytes]) -> None:
    master({"kafka_lag": incomplete(LAG, "worker-1")})

    assert kctl("rpc", "kafka_lag", "--fail-above", "61").code == 4
    assert kctl("rpc", "kafka_lag", "--fail-above", "62").code == 3


def test_old_answers_are_shown_with_their_age(kctl: Kctl, master: Master) -> None:
    master({"kafka_lag": Answers(LAG, age_seconds=75.0)})

    assert kctl("rpc", "kafka_lag").out.splitlines()[-1] == "age: 1m15s"


def test_a_master_that_does_not_permit_it_exits_5(kctl: Kctl, master: Master) -> None:
    master({"kafka_lag": Refuses(NotPermitted("this socket serves its own user and root only"))})

    ran = kctl("rpc", "kafka_lag")

    assert (ran.code, "does not allow" in ran.err) == (5, True)


def test_a_worker_that_is_not_there_is_wrong_usage_with_the_masters_sentence(kctl: Kctl, master: Master) -> None:
    master({"workers": Refuses(BadParams("there is no worker of that name; there are worker-0"))})

    ran = kctl("rpc", "workers", "--worker", "nobody")

    assert (ran.code, ran.err) == (2, "kctl: workers: there is no worker of that name; there are worker-0\n")


def test_a_master_that_does_not_answer_in_time_exits_1(kctl: Kctl, master: Master) -> None:
    master({"kafka_lag": Stalls()})

    ran = kctl("rpc", "kafka_lag", "--timeout", "0.1")

    assert (ran.code, "did not answer within 0.1 s" in ran.err) == (1, True)


def test_a_master_that_breaks_off_exits_1(kctl: Kctl, master: Master) -> None:
    master({"kafka_lag": [BreaksFrame(LAG), SendsBytes(b"\x00\x00\x00\x03abc")]})

    assert [kctl("rpc", "kafka_lag").code for _ in range(2)] == [1, 1]


def test_a_result_without_the_expected_shape_is_one_sentence_and_no_traceback(kctl: Kctl, master: Master) -> None:
    master({"kafka_lag": Answers({"topics": 7})})

    ran = kctl("rpc", "kafka_lag")

    assert (ran.code, ran.err.count("\n"), "Traceback" in ran.err) == (1, 1, False)
    assert ran.err.startswith(
        "kctl: the master's answer to kafka_lag does not have its shape: Expected `object`, got `int`"
    )


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

    for words in (
        ("-c", named, "rpc"),
        (f"-c{named}", "rpc"),
        (f"--config={named}", "rpc"),
        ("--config", named, "rpc"),
    ):
        assert kctl(*words, "kafka_lag").code == 0
    assert kctl("-c", absent, "rpc", "kafka_lag", "-c", named).code == 0
    monkeypatch.setenv("KCTL_CONFIG", absent)
    assert kctl("rpc", "kafka_lag").code == 2
    assert kctl("rpc", "kafka_lag", "-c", named).code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "give a command: kafka_lag, offset_checker"),
        (("kafka_lags",), "there is no rpc command `kafka_lags`; the nearest is `kafka_lag`"),
        (("x\x1b[2J",), "there is no rpc command `x\\u001b[2J`; there are kafka_lag"),
        (("kafka_lag", "--timeout", "soon"), "argument --timeout: `soon` is not a number of seconds above 0"),
        (("kafka_lag", "--timeout", "0"), "is not a number of seconds above 0"),
        (("kafka_lag", "--timeout", "nan"), "is not a number of seconds above 0"),
        (("kafka_lag", "--watch", "-1"), "is not a number of seconds above 0"),
        (("kafka_lag", "-o", "xml"), "argument -o/--output: invalid choice: 'xml'"),
        (("kafka_lag", "--fail-above", "many"), "argument --fail-above: `many` is not a whole number, 0 or more"),
        (
            ("kafka_lag", "--fail-above", "9" * 19),
            f"argument --fail-above: `{'9' * 19}` is not a whole number, of 64 bits",
        ),
        (
            ("workers", "--fail-above", "1"),
            "--fail-above is for kafka_lag, offset_checker, block_size, not for workers",
        ),
        (("kafka_lag", "--nonsense"), "kctl rpc does not accept --nonsense; see `kctl rpc --help`"),
        (("kafka_lag", "--work", "w"), "kctl rpc does not accept --work; see `kctl rpc --help`"),
    ],
)
def test_wrong_usage_exits_2_with_one_sentence(kctl: Kctl, words: tuple[str, ...], sentence: str) -> None:
    ran = kctl("rpc", *words)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("kctl: ")
    assert sentence in ran.err
    assert ran.err.count("\n") == 1
