from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kctl_agent.process.bootstrap import BootstrapError, log_trace
from kctl_agent.worker.query.transform import load_transform


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("def clean(", "SyntaxError"),
        ("raise OSError('no licence')", "OSError: no licence"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("other = 1", "has no attribute 'clean'"),
        ("clean = 1", "is not a function"),
    ],
)
def test_bad_transforms_end_a_start(code: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"clean_{abs(hash(code))}"
    (tmp_path / f"{name}.py").write_text(code)

    with pytest.raises(BootstrapError) as failure:
        load_transform(f"{name}:clean", tmp_path)

    assert f"workers.transform '{name}:clean'" in str(failure.value)
    assert complaint in str(failure.value)


def test_what_a_module_raised_at_its_import_is_logged_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "licensed.py").write_text("raise OSError('no licence')")

    with pytest.raises(BootstrapError) as failure:
        load_transform("licensed:clean", tmp_path)
    log_trace(failure.value)

    assert "    Traceback (most recent call last):" in caplog.text
    assert "    OSError: no licence" in caplog.text


def test_an_error_that_is_one_sentence_by_design_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    log_trace(BootstrapError("storage.path is missing"))

    assert caplog.text == ""
