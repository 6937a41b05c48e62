from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kctl_agent.errors import BadParams, NotPermitted
from tests.command_lines import Kctl, Master
from tests.servers.scripted_agent import Answers, BreaksFrame, Refuses, SendsBytes

LAG = {"total": 62, "unknown": [], "topics": {"orders": 60, "payments": 2}}


def test_timeout_and_worker_travel_with_the_question(kctl: Kctl, master: Master) -> None:
    agent = master({"workers": Answers({"rows": []})})

    assert kctl("rpc", "workers", "--worker", "worker-0", "--timeout", "0.5").code == 0

    assert (agent.requests[0].params, agent.requests[0].deadline_ms) == ({"worker": "worker-0"}, 500)


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
