"""Turns a decoded frame into the bytes of its reply. Uses no socket and no thread."""

import logging
import traceback
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kctl_agent.errors import (
    BadParams,
    BadRequest,
    Busy,
    CommandFailed,
    FrameTooLarge,
    NotPermitted,
    NotReady,
    UnknownMethod,
)
from kctl_agent.replies.workers import WorkerReply
from kctl_agent.rpc.commands import AgentCommand
from kctl_agent.rpc.messages import check_request, printable_name, readable_id, reply_error
from kctl_agent.rpc.params import check_params
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import JsonObject, encode, frame_of, json_text, quote

_PUBLIC: Final = (BadParams, BadRequest, Busy, CommandFailed, FrameTooLarge, NotPermitted, NotReady, UnknownMethod)
"""Errors whose sentences are meant for callers. Others, such as PathError, may contain a path and stay in the log."""


class FaultCounters:
    """Logs the 1st, 2nd, 4th, 8th … fault of a kind, so that bad frames cannot flood the log."""

    def __init__(self, log: logging.Logger, name: str) -> None:
        self.counts: Counter[str] = Counter()
        self._log = log
        self._name = name

    def note(self, what: str) -> None:
        self.counts[what] += 1
        count = self.counts[what]
        if count & (count - 1) == 0:
            self._log.warning("agent %s: %s (%d so far)", self._name, what, count)


class Dispatcher:
    """Answers requests with data of the last snapshot. Any thread may set `snapshot`, but only one calls `reply_to`."""

    def __init__(self, name: str, commands: Mapping[str, AgentCommand], faults: FaultCounters) -> None:
        self.snapshot: Snapshot | None = None
        self._name = name
        self._quoted = json_text(name)
        self._commands = {command.method: command for command in commands.values()}
        self._faults = faults
        self._blank = Snapshot(0.0, WorkerReply.starting(name))

    def reply_to(self, frame: JsonObject, now: float) -> bytes:
        """Returns the reply to a frame. Never raises, whatever a peer sends or a command does."""
        command = None
        try:
            check_request(frame)
            command = self._commands.get(frame["method"])
            if command is None:
                raise UnknownMethod(f'no method "{printable_name(frame["method"])}" here: getDescribe lists them')
            return self._answer(command, frame, now)
        except _PUBLIC as error:
            return encode(reply_error(readable_id(frame), error))
        except Exception as error:
            name = command.name if command else "the request"
            self._faults.note(f"{name} failed: {type(error).__name__} at {place_of(error)}")
            failed = CommandFailed(f"{name} failed inside the agent of {self._name}: its log has the cause")
            return encode(reply_error(readable_id(frame), failed))

    def _answer(self, command: AgentCommand, frame: JsonObject, now: float) -> bytes:
        params = frame.get("params") or {}
        if params or command.params:
            check_params(command.name, command.params, params)
        snapshot, age = self.snapshot, 0.0
        if command.needs_snapshot:
            if snapshot is None:
                raise NotReady(f"{self._name} has not published anything yet: ask again")
            age = now - snapshot.published_at
            if age < 0.0:  # published after this round of the loop began
                age = 0.0
        elif snapshot is None:
            snapshot = self._blank
        result = command.answer(snapshot, params, now)
        # `reply_ok` as one text: saves two dicts and half the encoding (benchmarks/round_trip.py).
        id_ = frame.get("id")
        id_text = "null" if id_ is None else quote(id_)
        text = json_text(result)
        return frame_of(
            f'{{"v":1,"id":{id_text},"ok":true,"result":{text},"from":{self._quoted},"age_seconds":{age:.6f}}}'
        )


def place_of(error: Exception) -> str:
    """Returns the file and line of an error. Omits its message, which may contain a peer's text."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
