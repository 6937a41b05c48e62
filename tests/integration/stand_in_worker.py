"""A test child that keeps the worker's side of the start protocol: settings on stdin, an agent, SIGTERM, end of stdin.

It claims committed offset 40 of 100 in partition 0 of the first topic, and takes operations. Its grandchild has its own
process group, as a Spark driver has. `KCTL_TEST_WORKER` in Spark's conf makes it misbehave. If `KCTL_TEST_FAULT_FILE`
names a file, it misbehaves only while that file exists, so that a later incarnation is healthy:

`boot_failure` exits with 78, `dies` with 1 · `stubborn` ignores SIGTERM · `hangs` stays in a C call that keeps the
interpreter · `blocks` blocks its main thread; its agent answers · `grows` takes 200 MB more after a second · `stalls`
finishes no batch · `loads` never reaches its first turn; its agent answers · `begins` stays `starting` · `slow` takes a
second for the batch that an operation waits for · `writes` keeps writing to `KCTL_TEST_FAULT_FILE`

With `KCTL_TEST_JOINS` it joins the real group and commits nothing. With `KCTL_TEST_READS` it reads that many messages
of each partition per half second, except of partition `KCTL_TEST_SKIPPED`, and at most `KCTL_TEST_CAPACITY` per second
in all.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kctl_agent.kafka.security import Security
from kctl_agent.process.stop import StopRequest, watch_parent
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.replies.partitions import PartitionReply, PartitionsReply
from kctl_agent.replies.workers import Scope, WorkerReply
from kctl_agent.rpc.commands import COMMANDS, PauseScopes, SeekPartition, operation_commands, ping_of, with_describe
from kctl_agent.rpc.operations import AcceptedOperation, Inbox, Outcome, is_paused, scope_of
from kctl_agent.rpc.server import AgentServer
from kctl_agent.rpc.snapshot import Snapshot

if TYPE_CHECKING:
    from kctl_agent.worker.consumer_group.membership import Membership
    from tests.integration.reading_worker import Reader

END = 100
STORED = StorageReply("file:/stand-in", pending=7, processing=0, dead=0, bytes=70, age_seconds=0.0)


class StandIn:
    def __init__(self, name: str, topic: str, behaviour: str, paused: Sequence[Scope]) -> None:
        self.name, self.topic, self.behaviour = name, topic, behaviour
        self.inbox = Inbox(paused)
        self.started_at = time.monotonic()
        self.position = 50
        self.batches = 0
        self.waiting: list[tuple[float, AcceptedOperation]] = []

        self.membership: Membership | None = None
        self.reader: Reader | None = None

    @property
    def partition(self) -> int:
        return int(self.name.rpartition("-")[2]) + int(os.environ.get("KCTL_TEST_FIRST_PARTITION", "0"))

    @property
    def is_paused(self) -> bool:
        return is_paused(self.inbox.paused, self.topic, self.partition)

    @property
    def state(self) -> str:
        if self.behaviour in ("loads", "begins"):
            return "starting"
        is_full = self.reader is not None and self.reader.storage is not None and self.reader.storage.full is not None
        if is_full:
            return "throttled"
        return "paused" if self.is_paused else "running"

    @property
    def partitions(self) -> tuple[PartitionReply, ...]:
        if self.membership is None:
            offsets = (0, 40, self.position, END, END - 40)
            return (PartitionReply(self.topic, self.partition, *offsets, generation=0, age_seconds=0.0),)
        generation = self.membership.info.generation or 0
        if self.reader is not None:
            return self.reader.partitions(generation)
        return tuple(
            PartitionReply(each.topic, each.partition, generation=generation) for each in self.membership.partitions
        )

    def turn(self, publish: Callable[[Snapshot], None]) -> None:
        now = time.monotonic()
        if not self.is_paused and self.behaviour not in ("stalls", "begins"):
            self.batches += 1
        if self.reader is not None and self.behaviour != "begins":
            self.reader.turn(lambda tp: is_paused(self.inbox.paused, tp.topic, tp.partition))
        for operation in self.inbox.take():
            is_slow = self.behaviour == "slow" and not operation.params.get("dry_run")
            self.waiting.append((now + (1.0 if is_slow else 0.0), operation))
        for at, operation in list(self.waiting):
            if at <= now:
                self.waiting.remove((at, operation))
                outcome = self.inbox.begin(operation) or self.outcome(operation)
                publish(self.snapshot())  # first, so that a caller whose operation is done sees its effect
                self.inbox.report(operation.id, outcome)

    def outcome(self, operation: AcceptedOperation) -> Outcome:
        if operation.rpc == "pause":
            return Outcome("done", "a reason")
        target = int(operation.params["to"])
        result = {"topic": self.topic, "partition": self.partition, "from": self.position, "to": target}
        if not operation.params.get("dry_run"):
            self.position = target
        return Outcome("done", f"{self.topic}-{self.partition}: goes on at {target}", result)

    def snapshot(self) -> Snapshot:
        now = time.monotonic()
        worker = replace(
            WorkerReply.starting(self.name, "worker"),
            state=self.state,
            state_seconds=now - self.started_at,
            uptime_seconds=now - self.started_at,
            batches_total=self.batches if self.reader is None else self.reader.batches_total,
            rows_total=None if self.reader is None else self.reader.rows_total,
            batch_seconds_total=None if self.reader is None else self.reader.batch_seconds_total,
            paused=self.inbox.paused,
        )
        return Snapshot(
            now,
            worker,
            replies=(
                PartitionsReply(self.partitions),
                None if self.membership is None else self.membership.info,
                STORED if self.reader is None else self.reader.storage,
            ),
            not_read=frozenset([(self.topic, self.partition)] if self.is_paused else ()),
        )


def hang() -> None:
    """One C call that keeps the interpreter: a pattern with exponential backtracking."""
    re.match(r"(a+)+$", "a" * 64 + "b")


def main() -> int:
    settings: dict[str, Any] = json.loads(sys.stdin.readline())
    conf = settings["spark"]["conf"]
    behaviour = conf.get("KCTL_TEST_WORKER", "")
    fault_file = conf.get("KCTL_TEST_FAULT_FILE", "").replace("NAME", settings["name"])
    if fault_file and not Path(fault_file).exists():
        behaviour = ""
    print(f"{settings['name']} starts", flush=True)
    if behaviour == "boot_failure":
        print("no such transform: module:function", flush=True)
        return 78
    if behaviour == "dies":
        print("there is no such column: price", flush=True)
        return 1
    leave = StopRequest()
    watch_parent(leave.ask)
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = "import signal; signal.pause()"
    grandchild = subprocess.Popen([sys.executable, "-c", code], process_group=0, stdin=subprocess.DEVNULL)
    scopes = [scope_of(each) for each in settings.get("paused", ())]
    worker = StandIn(settings["name"], settings["kafka"]["topics"][0], behaviour, scopes)
    commands = with_describe(
        {**COMMANDS, "ping": ping_of(worker.inbox), **operation_commands(worker.inbox, PauseScopes, SeekPartition)}
    )
    if conf.get("KCTL_TEST_JOINS"):
        # Only here, because kafka-python takes two thirds of the time to start.
        from kctl_agent.worker.consumer_group.membership import Membership
        from kctl_agent.worker.settings import KafkaSettings
        from tests.integration.reading_worker import Reader

        kafka = KafkaSettings(**{**settings["kafka"], "security": Security(**settings["kafka"]["security"])})
        worker.membership = Membership(kafka, kafka.client_id, lambda _: {}, lambda: None, lambda _: None)
        if at_once := int(conf.get("KCTL_TEST_READS", "0")):
            skipped = conf.get("KCTL_TEST_SKIPPED", "")
            capacity = float(conf.get("KCTL_TEST_CAPACITY", "inf"))
            worker.reader = Reader(worker.membership, kafka, settings["storage"], at_once, skipped, capacity)
    server = AgentServer(Path(settings["run_dir"]), settings["name"], commands)
    server.publish(worker.snapshot())
    server.start()
    if behaviour == "loads":
        signal.pause()
    held = b""
    while not leave.wait(0.05):
        if worker.membership is not None:
            worker.membership.poll(0.01)
        worker.turn(server.publish)
        server.publish(worker.snapshot())
        age = time.monotonic() - worker.started_at
        if behaviour == "grows" and age > 1.0 and not held:
            held = bytes(bytearray(b"x") * (200 << 20))
        if behaviour == "blocks" and age > 0.5:
            signal.pause()
        if behaviour == "hangs" and age > 0.5:
            hang()
        if behaviour == "writes":
            with open(fault_file, "a") as file:
                file.write("x")
    server.close()
    if worker.reader is not None:
        worker.reader.close()
    if worker.membership is not None:
        worker.membership.close()
    grandchild.kill()
    grandchild.wait()
    print(f"{settings['name']} leaves", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
