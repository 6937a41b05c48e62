import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from kctl.master.health import HealthRules
from kctl.master.process_supervisor import Launch, ProcessSupervisor, SupervisionPolicy
from kctl.master.restart import RestartPolicy
from kctl.master.supervisor import Supervisor
from kctl.rows.workers import WorkerStatus
from kctl_agent.replies.workers import PingReply
from tests.processes import until

UP = "import sys; print('ready to work', flush=True); sys.stdin.read()"
QUICK = RestartPolicy(backoff_min_seconds=0.05, backoff_max_seconds=0.2, stable_seconds=60)
SLOW_PINGS = HealthRules(ping_timeout_seconds=60)


class Fleet:
    """A supervisor whose workers run `programs`. An empty program cannot be executed. Agents answer while their
    processes live, unless they are in `silent`."""

    def __init__(
        self,
        folder: Path,
        *programs: str,
        policy: RestartPolicy = QUICK,
        rules: HealthRules = SLOW_PINGS,
        stop_timeout_seconds: float = 10.0,
    ) -> None:
        self.folder, self.stop_timeout_seconds = folder, stop_timeout_seconds
        self.silent: set[str] = set()
        self.reported: dict[str, Any] = {}
        self.asked = 0
        launches = [self.launch(f"worker-{number}", program) for number, program in enumerate(programs)]
        every = SupervisionPolicy(policy, rules, ping_interval_seconds=0.05, memory_interval_seconds=0.05)
        self.supervisor = Supervisor(launches, {"worker": every}, self.answer)

    def launch(self, name: str, program: str) -> Launch:
        python = [sys.executable, "-c", program, str(self.folder / "pid")]
        log, socket = self.folder / f"{name}.log", self.folder / f"{name}.sock"
        command = python if program else [str(self.folder / "no such command")]
        return Launch(name, command, {}, log, socket, 10.0, self.stop_timeout_seconds)

    async def answer(self, name: str, _timeout_seconds: float) -> PingReply | None:
        self.asked += 1
        pid = self.supervisor.process(name).pid
        return None if name in self.silent or pid is None else PingReply(pid, **self.reported)

    @property
    def process(self) -> ProcessSupervisor:
        return self.supervisor.process("worker-0")

    def __getitem__(self, number: int) -> WorkerStatus:
        return self.supervisor.status()[number]

    @contextlib.asynccontextmanager
    async def running(self, *states: str) -> AsyncIterator[None]:
        """Begins when the workers have these states: by default, when all run."""
        task = asyncio.create_task(self.supervisor.run())
        try:
            await until(
                lambda: (
                    all(each.state == state for each, state in zip(self.supervisor.status(), states, strict=True))
                    if states
                    else {each.state for each in self.supervisor.status()} == {"running"}
                )
            )
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            # asyncio waits for each process in a thread; a loop that closes before leaves the process unclosed.
            await until(lambda: not any(each.name.startswith("asyncio-waitpid-") for each in threading.enumerate()))
            await asyncio.sleep(0)
