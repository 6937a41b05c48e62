from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXPENSIVE = {
    *("asyncio", "fastapi", "hypothesis", "kafka", "kctl.config", "kctl.reduce", "logging", "prometheus_client"),
    *("psutil", "pydantic", "pyspark", "rich", "subprocess", "uvicorn", "yaml"),
}
COMPUTING = {"numpy", "pyarrow", "redis", "zlib_ng", "kctl.status"}


@pytest.mark.parametrize(
    ("commands", "needed", "needless"),
    [
        ("rpc kafka_lag, rpc offset_checker -o json, status", "kctl.rpc.client", EXPENSIVE),
        ("jars paths broker", "kctl.cli.jars", {"kctl.config", "kctl.master", "kctl.demo", "kctl.rpc"}),
        ("kafka", "kctl.cli.kafka.commands", {"kafka", "kctl.config", "logging", "rich", "pydantic"}),
        ("--help, groups --help, top --help, exporter --help", "kctl.cli.help", COMPUTING),
    ],
)
def test_a_command_imports_only_what_it_needs(commands: str, needed: str, needless: set[str]) -> None:
    """Commands that need the same are run one after the other by one process."""
    code = (
        "import sys; from kctl.cli.entry import run; [run(words.split()) for words in sys.argv[1].split(',')];"
        "print('modules:', *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, commands], capture_output=True, text=True, check=False)

    imported = set(done.stderr.rpartition("modules:")[2].split())

    assert needed in imported
    assert not needless & imported


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
