"""Sends requests to the other hosts of a fleet, and lists the fleet's hosts. A master does not pass on another
master's request, so that requests cannot loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from msgspec import Raw, Struct, json
from msgspec import field as renamed
from msgspec.structs import replace

from kctl.fields import moment, qualified
from kctl.hosts.membership import SESSION_SECONDS, HostsMember, Seen
from kctl.hosts.roster import Gone, Host, Refused
from kctl.reduce.base import Answer
from kctl.rows.hosts import HostRow, HostsAnswer
from kctl.rows.verdict import Verdict
from kctl.rows.workers import StatusAnswer, Statuses
from kctl.rpc.decode import BadResult, decoded
from kctl.rpc.fan_out import Failed, FanOut
from kctl.status import Assessment
from kctl_agent.errors import AgentError, AgentTimeout, AgentUnreachable, BadParams, BadRequest
from kctl_agent.replies.encode import encoded
from kctl_agent.rpc.messages import printable_name
from kctl_agent.rpc.wire import JsonObject

if TYPE_CHECKING:  # imports httpcore, which a fleet on one host does not need
    from kctl.hosts.peers import Peers, PeersAccess


class AgentReply(Struct, frozen=True):
    sender: str = renamed(name="from")
    age_seconds: float
    result: Raw


class HostReplies(Struct, frozen=True):
    """The replies of a host's agents to a command. The master that asked combines them with its own agents' replies."""

    cluster: str
    group: str
    host: str
    incarnation: int
    answers: tuple[AgentReply, ...] = ()
    failed: tuple[Failed, ...] = ()
    stopped: tuple[str, ...] = ()
    age_seconds: float = 0.0
    status: Raw = Raw(b"null")
    """By command: `status`: the host's answer; `workers`: its processes as their supervisor sees them;
    `offset_checker`: `JudgedPartitions`."""
    verdict: Verdict | None = None


class JudgedPartitions(Struct, frozen=True):
    """The partitions that a host's workers read, with their assessments."""

    rows: tuple[tuple[str, int, Assessment], ...] = ()


_OPERATIONS_PATH = "/api/v1/operations"
_OPERATION_SECONDS = 5.0
_STATUS_TYPES: Final[dict[str, type[Struct]]] = {
    "status": StatusAnswer,
    "workers": Statuses,
    "offset_checker": JudgedPartitions,
}
_SILENT_HOST_SECONDS = 1.0
"""A host that did not answer the last question must not delay the others' answers."""
_STALE_SECONDS = 2 * SESSION_SECONDS


class _Operations(Struct, frozen=True):
    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class HostsOutcome:
    replies: tuple[tuple[HostReplies, float], ...] = ()
    failed: tuple[Failed, ...] = ()

    @property
    def heard(self) -> list[HostReplies]:
        silent = {each.sender for each in self.failed}
        return [each for each, _ in self.replies if each.host not in silent]

    def joined(self, own: FanOut[Raw], host: str) -> FanOut[Raw]:
        """Returns the replies of all hosts' agents, with the host in each agent's name. `own` has the replies of
        `host`, which is this host."""
        answers: list[Answer[Raw]] = []
        failed: list[Failed] = []
        stopped: list[str] = []
        every: list[tuple[str, FanOut[Raw] | HostReplies, float]] = [(host, own, 0.0)]
        for name, found, age in every + [(each.host, each, age) for each, age in self.replies]:
            answers += [
                Answer(qualified(name, each.sender), each.result, each.age_seconds).kept(age) for each in found.answers
            ]
            failed += [Failed(qualified(name, each.sender), each.code, each.message) for each in found.failed]
            stopped += [qualified(name, each) for each in found.stopped]
        return FanOut(answers, [*failed, *self.failed], tuple(stopped))


@dataclass(slots=True)
class _Known:
    silent_since: float | None = None  # Unix seconds
    failed_at: float = 0.0  # a host that has joined the group after this time is no longer silent
    reason: str | None = None
    last: dict[str, tuple[float, HostReplies]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Hosts:
    _member: HostsMember
    _peers: Peers
    me: Host
    _fleet: tuple[str, str]  # the cluster's name and the workers' consumer group
    _clock: Callable[[], float] = time.monotonic
    _wall_clock: Callable[[], float] = time.time
    _known: dict[str, _Known] = field(default_factory=dict)

    def start(self) -> None:
        self._member.start()

    async def close(self) -> None:
        """Leaves the group of masters and closes connections. Takes a few seconds."""
        await asyncio.to_thread(self._member.close)
        await self._peers.close()

    def answer(self) -> HostsAnswer:
        seen = self._member.seen
        roster, age = seen.roster, self._age(seen)
        rows = [*map(self._row, roster.hosts)]
        gone = ((each.host, each.since) for each in roster.gone)
        rows += [HostRow(host.name, "gone", host.url, host.version, host.protocols, since) for host, since in gone]
        rows += [HostRow(each.name, "refused", each.url, reason=each.reason) for each in roster.refused]
        return HostsAnswer(self.me.name, roster.leader, roster.protocol, tuple(rows), age, self._doubt(seen))

    @property
    def leader(self) -> str | None:
        """The host that leads the fleet. None if the roster is in `doubt`. Also None if no heartbeat was answered
        within the session time, because another host may lead by now."""
        seen = self._member.seen
        age = self._age(seen)
        return None if age is None or age >= SESSION_SECONDS or self.doubt is not None else seen.roster.leader

    @property
    def doubt(self) -> str | None:
        return self._doubt(self._member.seen)

    @property
    def gone(self) -> list[str]:
        return [each.host.name for each in self._member.seen.roster.gone]

    @property
    def names(self) -> list[str]:
        return [each.name for each in self._member.seen.roster.hosts]

    def url(self, name: str) -> str | None:
        return next((each.url for each in self._member.seen.roster.hosts if each.name == name), None)

    async def submit(self, host: str, operation: JsonObject) -> JsonObject:
        """Starts an operation on a host. Returns the host's answer: the operation's state, or an error. Raises
        AgentUnreachable or NotPermitted if nothing was sent. Raises AgentTimeout if the operation may have begun."""
        return await self._operate("POST", host, "", json.encode(operation))

    async def operation(self, host: str, id_: str, *, cancel: bool = False) -> JsonObject:
        """Returns the host's answer: the operation's state, or an error. If `cancel` is true, first cancels the
        operation. Raises AgentError."""
        path = f"/{quote(id_, safe='')}"
        return await (
            self._operate("POST", host, f"{path}/cancel", b"{}") if cancel else self._operate("GET", host, path)
        )

    async def operations(self, seconds: float) -> tuple[list[JsonObject], list[Failed]]:
        roster = self._member.seen.roster
        hosts = [each for each in roster.hosts if each.key != self.me.key]
        found = await asyncio.gather(*(self._operations(each, seconds) for each in hosts))
        failed = [each for each in found if isinstance(each, Failed)]
        failed += [Failed(each.host.name, "gone", _left(each)) for each in roster.gone]
        failed += [_not_counted(each) for each in roster.refused]
        return [row for each in found if isinstance(each, list) for row in each], failed

    async def _operations(self, host: Host, seconds: float) -> list[JsonObject] | Failed:
        try:
            body = await self._peers.get(host.url, _OPERATIONS_PATH, seconds)
            return [{**row, "host": host.name} for row in decoded(_Operations, body).rows]
        except (AgentError, BadResult) as error:
            return Failed(host.name, error.code, f"host {host.name}: {error}")

    async def _operate(self, method: str, host: str, path: str, body: bytes = b"") -> JsonObject:
        if (url := self.url(host)) is None:
            raise AgentUnreachable(f"host {host} is missing")
        answer = await self._peers.operate(method, url, f"{_OPERATIONS_PATH}{path}", _OPERATION_SECONDS, body)
        try:
            return decoded(dict[str, Any], answer)
        except BadResult as error:
            raise AgentTimeout(f"its answer cannot be read: {error}") from None

    def use(self, access: PeersAccess) -> None:
        self._peers.use(access)

    def replies(
        self, outcome: FanOut[Raw], status: Struct | None, verdict: Verdict | None = None, age_seconds: float = 0.0
    ) -> HostReplies:
        return HostReplies(
            *self._fleet,
            self.me.name,
            self.me.incarnation,
            tuple(AgentReply(each.sender, each.age_seconds, each.result) for each in outcome.answers),
            tuple(outcome.failed),
            outcome.stopped,
            age_seconds,
            Raw(b"null" if status is None else json.encode(encoded(status))),
            verdict,
        )

    def check_known(self, name: str) -> None:
        """Checks that the fleet has a host of this name. Raises BadParams."""
        known = sorted(each.name for each in self.answer().rows)
        if name not in known:
            raise BadParams(f"there is no host {printable_name(name)}; there are {', '.join(known) or 'none'}")

    def forget(self, name: str) -> bool:
        """Makes all hosts forget the gone host of this name. Returns False if no gone host has this name."""
        found = [each.host for each in self._member.seen.roster.gone if each.host.name == name]
        for host in found:
            self._member.forget(host)
            self._known.pop(name, None)
        return bool(found)

    async def ask(self, command: str, seconds: float, *, host: str | None = None, worker: str = "") -> HostsOutcome:
        """Asks `host`, or all other hosts, for their agents' replies to `command`. Also asks gone hosts, which may
        be running, but cut off from Kafka. Raises BadParams for an unknown host."""
        if host is not None:
            self.check_known(host)
        seen = self._member.seen
        others = [each for each in seen.roster.hosts if each.key != self.me.key and not each.is_leaving]
        present = [each for each in others if host in (None, each.name)]
        gone = [each for each in seen.roster.gone if host in (None, each.host.name)]
        named = {each.name for each in seen.roster.hosts} | {each.host.name for each in seen.roster.gone}
        self._known = {name: known for name, known in self._known.items() if name in named}
        every = [*present, *(each.host for each in gone)]
        if host is None:
            # a leaving host finishes its work
            await self._peers.keep([each.url for each in (*seen.roster.hosts, *every)])
        found = await asyncio.gather(*(self._ask(each, command, seconds, worker) for each in every))
        replies = [each for each in found if isinstance(each, HostReplies)]
        failed = [each for each in found[: len(present)] if isinstance(each, Failed)]
        failed += [_missed(each, answer) for each, answer in zip(gone, found[len(present) :], strict=True)]
        failed += [_not_counted(each) for each in seen.roster.refused if host in (None, each.name)]
        old = [
            (last[1], self._clock() - last[0])
            for each in found
            if isinstance(each, Failed)
            if not worker and (last := self._of(each.sender).last.get(command)) is not None
        ]
        if host is None and (doubt := self._doubt(seen)) is not None:
            failed.append(Failed("hosts", "stale", doubt))
        return HostsOutcome((*((each, 0.0) for each in replies), *old), tuple(failed))

    def _of(self, name: str) -> _Known:
        return self._known.get(name) or _Known()

    def _is_silent(self, host: Host) -> bool:
        known = self._of(host.name)
        return known.silent_since is not None and known.failed_at >= self._member.seen.joined_at.get(host.key, 0.0)

    async def _ask(self, host: Host, command: str, seconds: float, worker: str) -> HostReplies | Failed:
        known = self._known.setdefault(host.name, _Known())
        if self._is_silent(host):
            seconds = min(seconds, _SILENT_HOST_SECONDS)
        query = {"deadline_ms": str(max(int(seconds * 1000), 1))} | ({"worker": worker} if worker else {})
        try:
            body = await self._peers.get(host.url, f"/api/v1/hosts/replies/{command}?{urlencode(query)}", seconds)
            replies = decoded(HostReplies, body)  # undecoded, which takes 0.2 ms
            self._check(host, replies)
            if command in _STATUS_TYPES:
                decoded(_STATUS_TYPES[command], replies.status)
        except BadRequest as error:  # the host is there, perhaps with another release
            return Failed(host.name, error.code, f"host {host.name} does not answer this: {error}")
        except (AgentError, BadResult) as error:
            if not self._is_silent(host):
                known.silent_since = self._wall_clock()
            known.failed_at, known.reason = self._clock(), str(error)
            return Failed(host.name, error.code, self._sentence(host.name, known))
        known.silent_since = known.reason = None
        if not worker:
            known.last[command] = self._clock(), replies
        return replies

    def _check(self, host: Host, replies: HostReplies) -> None:
        if (replies.cluster, replies.group) != self._fleet:
            raise BadResult(f"a master of another fleet answers at {host.url}")
        if (replies.host, replies.incarnation) != (host.name, host.incarnation):
            raise BadResult(f"{replies.host} answers at {host.url}, but is not the master that joined the group")

    def _sentence(self, name: str, known: _Known) -> str:
        since = moment(known.silent_since or self._wall_clock())
        old = min((self._clock() - at for at, _ in known.last.values()), default=None)
        rows = "it has not answered yet" if old is None else f"its last answer is {old:.0f} s old"
        return f"host {name} has not answered since {since} ({known.reason}); {rows}"

    def _row(self, host: Host) -> HostRow:
        row = HostRow(host.name, "present", host.url, host.version, host.protocols)
        if host.key == self.me.key:
            return replace(row, state="here")
        if host.is_leaving:
            return replace(row, state="leaving")
        if not self._is_silent(host):
            return row
        known = self._of(host.name)
        return replace(row, state="silent", since=known.silent_since, reason=known.reason)

    def _age(self, seen: Seen) -> float | None:
        return None if seen.heartbeat_at is None else max(self._clock() - seen.heartbeat_at, 0.0)

    def _doubt(self, seen: Seen) -> str | None:
        age = self._age(seen)
        if age is None:
            return f"the other hosts are not known yet ({seen.error or 'this one is joining their group'})"
        if age > _STALE_SECONDS:
            return f"the list of the other hosts is {age:.0f} s old: the coordinator of their group is silent"
        if all(each.key != self.me.key for each in seen.roster.hosts):
            why = next((each.reason for each in seen.roster.refused if each.url == self.me.url), "they do not know it")
            return f"the other hosts do not count this one: {why}"
        return seen.error


def _left(gone: Gone) -> str:
    return f"host {gone.host.name} has left the group of masters without notice at {moment(gone.since)}"


def _not_counted(refused: Refused) -> Failed:
    return Failed(refused.name, "refused", f"host {refused.name} does not count: {refused.reason}")


def _missed(gone: Gone, answer: HostReplies | Failed) -> Failed:
    what, name = _left(gone), gone.host.name
    if isinstance(answer, HostReplies):
        return Failed(name, "gone", f"{what}, but answers: it may be cut off from Kafka")
    silent = answer.message.partition(" ")[2].partition(" ")[2]
    return Failed(name, "gone", f"{what}, and {silent}; start it again, or `kctl forget-host {name}`")
