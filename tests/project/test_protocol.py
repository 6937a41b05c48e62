"""docs/protocol.md and agent/README.md can be believed: bytes, bounds and examples."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

from kctl.master.control.server import SocketLimits
from kctl_agent.rpc.messages import MAX_ID_LENGTH
from kctl_agent.rpc.server import AgentServer
from kctl_agent.rpc.wire import MAX_REPLY_BYTES, MAX_REQUEST_BYTES, encode

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
    from kctl_agent.rpc.client import ask
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
