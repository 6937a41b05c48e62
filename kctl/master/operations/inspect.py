"""`log_level` and `stack`: how much a process writes down, and where it stands."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from kctl.jars import java_command
from kctl.master.operations.base import Caller, Report
from kctl.master.operations.context import Context
from kctl.master.process import session_members
from kctl_agent.errors import BadParams
from kctl_agent.rpc.messages import number_of
from kctl_agent.rpc.wire import JsonObject

__all__ = ["log_level", "stack"]

_ANSWER_SECONDS = 5.0
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


async def log_level(context: Context, params: JsonObject, _caller: Caller, _report: Report) -> tuple[str, JsonObject]:
    """Of one process, or of the master itself; until that process ends."""
    name, level = params["name"], params["level"].upper()
    if level not in _LEVELS:
        raise BadParams(f"a log level is one of {', '.join(_LEVELS)}")
    if name == "master":
        root = logging.getLogger()
        before = logging.getLevelName(root.level)
        root.setLevel(level)
    else:
        context.supervisor.process(name)
        answer = await context.agents.operate(name, "log_level", {"level": level}, _ANSWER_SECONDS)
        before = str(answer.get("before"))
    return f"{name} logs {level} from now on; it was {before}", {"before": before, "level": level}


async def stack(context: Context, params: JsonObject, _caller: Caller, _report: Report) -> tuple[str, JsonObject]:
    """Where all Python threads of a process stand, and those of its JVM by `jcmd`."""
    name = params["name"]
    answer = await context.agents.operate(name, "stack_dump", {}, _ANSWER_SECONDS)
    pid = (await context.agents.operate(name, "ping", {}, _ANSWER_SECONDS))["pid"]
    jvms = [await _jvm_stack(each) for each in await asyncio.to_thread(_jvms, pid)]
    threads = answer.get("threads", [])
    text = f"{name} has {number_of(len(threads), 'Python thread')} and {number_of(len(jvms), 'JVM')}"
    return text, {"threads": threads, "jvms": jvms}


def _jvms(pid: int) -> list[int]:
    """The Java processes of its session; of an attached application those of the session it was started in."""
    found = []
    for member in session_members(pid):
        try:
            if Path(f"/proc/{member}/comm").read_text() == "java\n":
                found.append(member)
        except OSError:
            continue
    return found


async def _jvm_stack(pid: int) -> JsonObject:
    """`error` instead of `stack` when it cannot be had: a JRE has no jcmd."""
    try:
        jcmd = await asyncio.to_thread(lambda: java_command().resolve().with_name("jcmd"))
        process = await asyncio.create_subprocess_exec(
            jcmd, str(pid), "Thread.print", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
    except OSError as error:
        return {"pid": pid, "error": f"jcmd cannot be run: {error.strerror}"}
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return {"pid": pid, "error": "the JVM does not answer"}
    return {"pid": pid, "stack": output.decode("utf-8", "replace")}
