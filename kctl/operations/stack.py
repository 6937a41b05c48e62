"""`stack`: the stacks of a process's threads."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kctl.master.operations.fleet_operation import Caller, Context, Done, FleetOperation, Report
from kctl_agent.rpc.messages import number_of
from kctl_agent.rpc.params import param
from kctl_agent.rpc.wire import JsonObject


class ShowStacks(FleetOperation, rpc="stack", changes=False):
    """Show the stacks of all threads of a process and of its JVM."""

    name: str = param("a worker, a sinker, `engine`, or an attached application", is_argument=True)

    def touches(self, context: Context) -> frozenset[str]:
        context.members.check_known(self.name)
        return frozenset()

    async def carry_out(self, context: Context, _caller: Caller, _report: Report) -> Done:
        answer = await context.agents.operate(self.name, "stack_dump", {})
        pid = (await context.agents.operate(self.name, "ping", {}))["pid"]
        jvms = [await _jvm_stack(each) for each in await asyncio.to_thread(_jvms, pid)]
        threads = answer.get("threads", [])
        text = f"{self.name} has {number_of(len(threads), 'Python thread')} and {number_of(len(jvms), 'JVM')}"
        return text, {"threads": threads, "jvms": jvms}


def _jvms(pid: int) -> list[int]:
    from kctl.master.process import session_members

    found = []
    # An attached application may share its session with other programs, whose JVMs are shown too.
    for member in session_members(pid):
        try:
            if Path(f"/proc/{member}/comm").read_text() == "java\n":
                found.append(member)
        except OSError:
            continue
    return found


async def _jvm_stack(pid: int) -> JsonObject:
    from kctl.jars.java import java_command

    try:
        jcmd = await asyncio.to_thread(lambda: java_command().resolve().with_name("jcmd"))
        process = await asyncio.create_subprocess_exec(
            jcmd, str(pid), "Thread.print", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
    except OSError as error:  # a JRE does not include jcmd
        return {"pid": pid, "error": f"jcmd cannot be run: {error.strerror}"}
    try:
        async with asyncio.timeout(5.0):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return {"pid": pid, "error": "the JVM does not answer"}
    return {"pid": pid, "stack": output.decode("utf-8", "replace")}
