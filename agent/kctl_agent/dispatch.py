"""From a decoded frame to the bytes of its reply: parse, look up, check, answer, encode. No socket, no thread.

This is the boundary at which whatever a command raises becomes a reply: its kind goes into the log with a count, and
only sentences written for callers leave the process.
"""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Final

from kctl_agent.commands.base import Command, check_params
from kctl_agent.errors import (
    AgentError,
    BadParams,
    BadRequest,
    Busy,
    CommandFailed,
    FrameTooLarge,
    NotPermitted,
    NotReady,
    UnknownMethod,
)
from kctl_agent.messages import Request, printable_name, readable_id, reply_error, reply_ok
from kctl_agent.snapshot import Snapshot
from kctl_agent.wire import JsonObject, encode

__all__ = ["Dispatcher", "Tally"]

_TELLABLE: Final = (BadParams, BadRequest, Busy, CommandFailed, FrameTooLarge, NotPermitted, NotReady, UnknownMethod)
"""Errors whose sentences are meant for a caller. Others, such as PathError, may hold a path and stay here."""


class Tally:
    """Counts what went wrong and logs the 1st, 2nd, 4th, 8th time: a flood of bad frames is no flood of lines."""

    def __init__(self, log: logging.Logger, name: str) -> None:
        self.counts: Counter[str] = Counter()
        self._log = log
        self._name = name

    def note(self, what: str) -> None:
        """Count one. `what` is a text of ours, never of a peer."""
        self.counts[what] += 1
        count = self.counts[what]
        if count & (count - 1) == 0:
            self._log.warning("agent %s: %s (%d so far)", self._name, what, count)


class Dispatcher:
    """Answers frames from the last snapshot. `snapshot` is set by any thread, `reply_to` is called by one."""

    def __init__(self, name: str, commands: Mapping[str, Command], tally: Tally) -> None:
        now = monotonic()
        self.snapshot: Snapshot | None = None
        self._name = name
        self._commands = {command.method: command for command in commands.values()}
        self._tally = tally
        self._blank = Snapshot(name, kind="", state="starting", state_since=now, started_at=now, published_at=now)

    def reply_to(self, frame: JsonObject) -> bytes:
        """The frame of the reply, good or bad; never raises for anything a peer can send or a command can do."""
        try:
            request = Request.parse(frame)
            command = self._commands.get(request.method)
            if command is None:
                raise UnknownMethod(f'no method "{printable_name(request.method)}" here: getDescribe lists them')
        except AgentError as error:
            return encode(reply_error(readable_id(frame), error))
        try:
            return self._answer(command, request)
        except _TELLABLE as error:
            return encode(reply_error(request.id, error))
        except Exception as error:
            self._tally.note(f"{command.name} failed: {type(error).__name__} at {_place(error)}")
            failed = CommandFailed(f"{command.name} failed inside the agent of {self._name}: its log says more")
            return encode(reply_error(request.id, failed))

    def _answer(self, command: Command, request: Request) -> bytes:
        if request.params or command.params:
            check_params(command, request.params)
        now = monotonic()
        snapshot = self.snapshot
        if not command.needs_snapshot:
            return encode(
                reply_ok(request.id, command.answer(snapshot or self._blank, request.params, now), self._name, 0.0)
            )
        if snapshot is None:
            raise NotReady(f"{self._name} has not published anything yet: ask again")
        result = command.answer(snapshot, request.params, now)
        age = now - snapshot.published_at
        return encode(reply_ok(request.id, result, self._name, age if age > 0.0 else 0.0))


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
