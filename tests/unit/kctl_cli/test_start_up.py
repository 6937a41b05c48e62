from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.kctl_cli.imported_modules import imported_by

TOO_EXPENSIVE = {
    "asyncio",
    "fastapi",
    "hypothesis",
    "kafka",
    "kctl.config",
    "kctl.reduce",
    "logging",
    "prometheus_client",
    "psutil",
    "pydantic",
    "pyspark",
    "rich",
    "subprocess",
    "uvicorn",
    "yaml",
}


COMPUTING = {"numpy", "pyarrow", "redis", "zlib_ng"}


@pytest.mark.parametrize("words", [("rpc", "kafka_lag"), ("rpc", "offset_checker", "-o", "json"), ("status",)])
def test_kctl_rpc_and_status_import_nothing_expensive(words: tuple[str, ...]) -> None:
    imported = imported_by(*words)

    assert "kctl.rpc.client" in imported
    assert not TOO_EXPENSIVE & imported


def test_a_command_does_not_import_what_only_another_needs() -> None:
    imported = imported_by("jars", "paths", "broker")

    assert "kctl.cli.jars" in imported
    assert not {"kctl.config", "kctl.master", "kctl.demo", "kctl.rpc"} & imported


@pytest.mark.parametrize("words", [("--help",), ("groups", "--help"), ("top", "--help"), ("exporter", "--help")])
def test_help_is_printed_without_what_collecting_and_storing_need(words: tuple[str, ...]) -> None:
    imported = imported_by(*words)

    assert "kctl.cli.help" in imported
    assert not (COMPUTING | {"kctl.status"}) & imported


def test_all_that_was_printed_is_there_although_the_process_ends_at_once(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out:
        subprocess.run([sys.executable, "-m", "kctl", "kafka", "--help"], stdout=out, check=True)

    assert (tmp_path / "out").read_text().endswith("24 the group has live members.\n")


def test_what_cannot_be_printed_is_reported_although_the_process_ends_at_once() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "kctl", "kafka", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    assert done.returncode != 0
    assert "No space left on device" in done.stderr
