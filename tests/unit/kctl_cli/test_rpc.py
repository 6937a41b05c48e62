from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kctl_agent.errors import BadParams, NotPermitted
from tests.command_lines import Kctl, Master
from tests.servers.scripted_agent import Answers, BreaksFrame, Refuses, SendsBytes

LAG = {"total": 62, "unknown": [], "topics": {"orders": 60, "payments": 2}}


def test_a_question_has_timeout_and_worker_and_its_answer_an_age_and_exit_code(
    kctl: Kctl, master: Master, incomplete: Callable[..., SendsBytes]
) -> None:
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
    shape = "the master's answer to kafka_lag does not have its shape: Expected `object`, got `int`"
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
