from __future__ import annotations

import pytest

from kctl.master.exit_reasons import cause, why

INFO = "2026-11-22T10:00:00.000Z INFO kctl_agent.worker reads orders-0 from 5"
SENTENCE = "cannot begin to read"
ERROR = f"2026-11-22T10:00:00.000Z ERROR kctl_agent.worker {SENTENCE}"


@pytest.mark.parametrize(
    ("code", "line", "reported"),
    [
        (-9, INFO, "signal 9, SIGKILL"),
        (-9, "ready to work", "signal 9, SIGKILL"),
        (-9, ERROR, f"signal 9, SIGKILL; {SENTENCE}"),
        (-6, "java.lang.OutOfMemoryError: Java heap space", None),
        (-11, None, "signal 11, SIGSEGV; its log is empty"),
        (78, "no such transform: module:function", "no such transform: module:function"),
        (1, ERROR, SENTENCE),
        (1, INFO, "exit code 1"),
        (0, None, "exit code 0; its log is empty"),
    ],
)
def test_the_cause_is_a_signal_or_a_line_of_the_log(code: int, line: str | None, reported: str | None) -> None:
    assert why(code, line) == (reported or f"{cause(code)}; {line}")


def test_a_signal_without_a_name_is_shown_by_its_number() -> None:
    assert cause(-200) == "signal 200"
