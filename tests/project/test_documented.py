"""Settings, commands, options, results, error codes and exit codes are documented."""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kctl.cli.entry import tree
from kctl.cli.help import page as help_of
from kctl.errors import KctlError
from kctl.master.control.server import SocketLimits
from kctl_agent.errors import AgentError
from kctl_agent.rpc.messages import MAX_ID_LENGTH
from kctl_agent.rpc.server import AgentServer
from kctl_agent.rpc.wire import MAX_REPLY_BYTES, MAX_REQUEST_BYTES, encode
from tests import proof
from tests.errors_page import errors_of
from tests.pages import DOCS, PARTS, current

DEPLOY = DOCS.parent / "deploy"


def rows_of(page: str) -> dict[str, list[str]]:
    rows = {}
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            rows[cells[0].strip("`")] = cells[1:]
    return rows


@pytest.mark.shows("settings, commands, options, errors, exit codes and metrics are documented")
@pytest.mark.shows("docs/problems.md shows what every view shows of more than thirty problems")
@pytest.mark.parametrize("name", PARTS)
def test_a_page_has_its_generated_parts_as_they_are_now(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == current(name), "make pages"


def test_every_acceptance_test_shows_a_promise() -> None:
    paths = proof.ROOT.glob("tests/acceptance/test_*.py")

    assert [path for path in paths if not list(proof.promises(path))] == []


def test_every_name_of_another_exporter_is_in_the_table_of_names() -> None:
    page = (DOCS / "exporter.md").read_text(encoding="utf-8")
    table = page[page.index("## Dashboards that were made for other exporters") : page.index("Not recorded:")]

    named = {name for name in re.findall(r"`([a-z_]+)`", table) if name.startswith(("kafka_", "kminion_"))}

    rules = [
        rule["record"]
        for name in ("kafka_exporter", "kminion")
        for group in yaml.safe_load((DEPLOY / "prometheus" / f"{name}.rules.yml").read_text())["groups"]
        for rule in group["rules"]
    ]
    assert named == {*rules}


def test_every_error_has_a_sentence_and_a_code_of_its_own_and_every_cause_of_a_failed_start_an_exit_code() -> None:
    kinds = [*errors_of(KctlError), *errors_of(AgentError)]
    causes = [kind for kind in errors_of(KctlError) if kind.exit_code >= 10]

    assert [kind for kind in kinds if not kind.__dict__["__doc__"]] == []
    assert len({kind.code for kind in kinds}) == len(kinds)
    assert len({kind.exit_code for kind in causes}) == len(causes)


def test_every_exit_code_is_in_its_table_and_on_the_help_page() -> None:
    table = " ".join(rows_of("errors.md"))
    help_page = help_of(tree(), "kctl")

    for code in {kind.exit_code for kind in errors_of(KctlError)}:
        assert re.search(rf"\b{code}\b", table) or "10 … 16" in table
        assert re.search(rf"\b{code}\s+[a-z]", help_page), code


ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
AGENT = ROOT / "agent" / "README.md"


def test_the_client_on_the_page_works(short_dir: Path) -> None:
    [client] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    with AgentServer(short_dir, "worker-0"):
        words = [str(short_dir / "worker-0.sock"), "ping", "getPing"]
        done = subprocess.run([sys.executable, "-c", client, *words], capture_output=True, text=True, check=True)

    reply = json.loads(done.stdout)
    assert (reply["ok"], reply["from"], reply["result"]["name"]) == (True, "worker-0", "worker-0")


def test_the_process_in_the_readme_of_the_agent_answers(short_dir: Path) -> None:
    [process] = re.findall(r"```python\n(.*?)```", AGENT.read_text(encoding="utf-8"), re.DOTALL)
    question = """\
    from kctl_agent.spark.gateway import ask
    print(ask(Path("run/my-process.sock"), "workers", {}, 5.0)["state"])
"""
    command = [sys.executable, "-c", process + question]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=short_dir)

    assert done.stdout == "running\n"


def test_the_frame_on_the_page_is_the_one_that_is_sent_and_the_bounds_are_those_of_agent_and_master() -> None:
    [frame] = re.findall(r"```\n([0-9a-f ]+)\n```", PAGE)
    assert bytes.fromhex(frame) == encode({"id": 1})

    of_agent = {name: given.default for name, given in inspect.signature(AgentServer).parameters.items()}
    of_master = SocketLimits()

    for name in ("max_connections", "frame_timeout_seconds", "idle_timeout_seconds"):
        assert of_agent[name] == getattr(of_master, name)
    assert f"within {of_master.frame_timeout_seconds:g} s" in PAGE
    assert f"after {of_master.idle_timeout_seconds:g} s" in PAGE
    assert f"Above {of_master.max_connections} connections" in PAGE
    assert f"at most {MAX_ID_LENGTH} characters" in PAGE
    assert (MAX_REQUEST_BYTES, MAX_REPLY_BYTES) == (1 << 20, 16 << 20)
    assert "at most 1 MiB, a reply at most 16 MiB" in PAGE
