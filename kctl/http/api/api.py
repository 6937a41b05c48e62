"""`Api` and `Streams`, the state that the API's routes share."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Any, TypeVar

import msgspec
from fastapi import HTTPException, Request, Response

from kctl.fields import host_and_name
from kctl.http.api.answers import lag_rows
from kctl.http.source import SnapshotSource
from kctl.master.snapshot import FleetSnapshot, Reduced
from kctl_agent.errors import BadParams, Busy, NotReady
from kctl_agent.replies.encode import encoded
from kctl_agent.rpc.messages import Request as Question
from kctl_agent.rpc.messages import Role, reducer_method, wire_method
from kctl_agent.rpc.wire import JsonObject

_AT_A_TIME = 64
_SILENCE_SECONDS = 15.0  # comments at this interval keep proxies from closing a silent stream


class Streams:
    """Event streams on one event loop. `life` makes this master's event ids differ from those of an earlier master."""

    def __init__(self, source: SnapshotSource, life: str) -> None:
        self._source = source
        self._life = life
        self._open = 0
        self._closing = asyncio.Event()

    def close(self) -> None:
        self._closing.set()

    def restart(self) -> None:
        """Ends all open streams, but accepts new ones."""
        self._closing.set()
        self._closing = asyncio.Event()

    def begin(self, last_event_id: str | None, recent: int) -> AsyncIterator[str]:
        """Streams the events after `last_event_id`. If an earlier master made the id, begins with the oldest event that
        this master keeps. Without an id, begins with the last `recent` events. Raises Busy."""
        if self._open >= _AT_A_TIME:
            raise Busy(f"{_AT_A_TIME} event streams are open already")
        return self._lines(self._first(last_event_id, recent))

    def _first(self, last_event_id: str | None, recent: int) -> int:
        last = self._source.feed.last_number
        if last_event_id:
            life, _, number = last_event_id.rpartition("-")
            # An id of an earlier master: everything that this one has seen is new.
            return min(int(number), last) if life == self._life and number.isdecimal() and len(number) < 20 else 0
        return max(last - recent, 0)

    async def _lines(self, number: int) -> AsyncIterator[str]:
        feed, collections, closing = self._source.feed, -1, self._closing
        self._open += 1
        try:
            yield "retry: 2000\n\n"
            while not closing.is_set():
                for number, event in feed.since(number):  # noqa: B020 - continues after the last one sent
                    text = json.dumps({"worker": None, **encoded(event)})
                    yield f"id: {self._life}-{number}\nevent: happened\ndata: {text}\n\n"
                if feed.collections != collections:
                    collections = feed.collections
                    snapshot = self._source.latest()
                    sequence = None if snapshot is None else snapshot.sequence
                    yield f"event: collected\ndata: {json.dumps({'sequence': sequence})}\n\n"
                if not await self._woken(collections, closing):
                    yield ": still here\n\n"
        finally:
            self._open -= 1

    async def _woken(self, collections: int, closing: asyncio.Event) -> bool:
        waiting = [
            asyncio.ensure_future(self._source.feed.wait_beyond(collections)),
            asyncio.ensure_future(closing.wait()),
        ]
        try:
            done, _ = await asyncio.wait(waiting, timeout=_SILENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            return bool(done)
        finally:
            for each in waiting:
                each.cancel()


_LIVE_AT_A_TIME = 8
_SHARED_SECONDS = 1.0
T = TypeVar("T")


class Api:
    """The state that the API's routes share: the last snapshot, requests to the agents, and recent answers. Belongs to
    one event loop. `life` makes this master's ETags differ from those of a later master."""

    def __init__(self, source: SnapshotSource, streams: Streams, life: str) -> None:
        self.source = source
        self.streams = streams
        self._lag_rows: tuple[FleetSnapshot | None, list[JsonObject]] = None, []
        self._life = life
        self._asking = 0
        self._shared: dict[Hashable, tuple[float, float, asyncio.Future[Any]]] = {}
        """Shared answers: when each began, until when it is shared, and its future."""

    def latest(self) -> FleetSnapshot:
        """Returns the last snapshot. Raises NotReady if there is no snapshot yet."""
        snapshot = self.source.latest()
        if snapshot is None:
            raise NotReady("the first collection is not finished yet")
        return snapshot

    def lag_rows(self, snapshot: FleetSnapshot) -> list[JsonObject]:
        """Returns the rows of a snapshot's partitions. Do not change them, because all requests share them."""
        if self._lag_rows[0] is not snapshot:
            self._lag_rows = snapshot, lag_rows(snapshot, snapshot.offset_checker.result)
        return self._lag_rows[1]

    def asked(self, *, is_live: bool, is_local: bool, host: str | None) -> JsonObject | None:
        """Returns the parameters of a request to the agents, or None if the last snapshot is enough. Raises
        HTTPException for an unknown host."""
        hosts = self.source.hosts
        if host is not None:
            try:
                if hosts is None:
                    raise BadParams("this fleet runs on one host")
                hosts.check_known(host)
            except BadParams as error:
                raise HTTPException(404, str(error)) from None
            return {"host": host}
        if is_local or hosts is None:
            return {"local": True} if is_live else None
        return {}

    async def ask(self, command: str, params: JsonObject) -> Reduced[Any]:
        """Sends one of `kctl.master.reduction.COMMANDS` to the agents. Combines their replies. Raises Busy."""
        with self._one_of_few():
            return await self.source.ask(_question(command, reducer_method(command), params))

    async def status(self, params: JsonObject) -> JsonObject:
        """Returns the verdict, processes, `complete` and `failed` of the hosts that `params` selects. Raises Busy."""
        with self._one_of_few():
            answer = await self.source.answer(_question("status", wire_method("status"), params))
        beside = {name: answer.get(name, default) for name, default in (("complete", True), ("failed", []))}
        return {"verdict": answer["result"]["verdict"], "workers": answer["result"]["rows"], **beside}

    async def shared(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T, float]:
        """Returns the result of `work` and its age in seconds. Calls with the same `key` share a result for one second,
        or for four times the duration of `work` if that is longer."""
        now = self.source.clock()
        begun_at, until, found = self._shared.get(key, (now, -inf, None))
        if found is None or now > until:
            begun_at, found = now, asyncio.ensure_future(work())
            self._shared[key] = begun_at, inf, found
            found.add_done_callback(partial(self._share, key, begun_at))
        result = await asyncio.shield(found)
        return result, self.source.clock() - begun_at if begun_at != now else 0.0

    def with_hosts(self, rows: list[JsonObject]) -> list[JsonObject]:
        """Adds `host` to rows of processes and partitions, if the fleet has several hosts."""
        hosts = self.source.hosts
        key = next((each for each in ("worker", "name") if rows and each in rows[0]), None)
        if hosts is None or key is None:
            return rows
        return [{**row, "host": row[key] and (host_and_name(row[key])[0] or hosts.me.name)} for row in rows]

    def own_name(self, name: str) -> str:
        """Returns a process's name without its host. Raises HTTPException for a process of another host."""
        hosts = self.source.hosts
        if hosts is None:
            return name
        host, own = host_and_name(name)
        if host in ("", hosts.me.name):
            return own
        raise HTTPException(404, f"only its own host knows {name}: ask {hosts.url(host) or host}")

    @contextmanager
    def _one_of_few(self) -> Iterator[None]:
        if self._asking >= _LIVE_AT_A_TIME:
            raise Busy(f"{_LIVE_AT_A_TIME} live requests are in progress already: retry, or ask without live")
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1

    def _share(self, key: Hashable, begun_at: float, done: asyncio.Future[Any]) -> None:
        if done.cancelled() or done.exception() is not None:
            del self._shared[key]
            return
        # Longer if it took long, as with thousands of partitions.
        seconds = max(_SHARED_SECONDS, 4 * (self.source.clock() - begun_at))
        self._shared[key] = begun_at, begun_at + seconds, done
        asyncio.get_running_loop().call_later(seconds, self._drop, key, done)

    def _drop(self, key: Hashable, done: asyncio.Future[Any]) -> None:
        if key in self._shared and self._shared[key][2] is done:
            del self._shared[key]

    def age_seconds(self, snapshot: FleetSnapshot) -> float:
        return max(self.source.clock() - snapshot.taken_at, 0.0)

    def unchanged(self, snapshot: FleetSnapshot, if_none_match: str | None) -> Response | None:
        tag = self._tag(snapshot)
        wanted = [each.strip() for each in (if_none_match or "").split(",")]
        return Response(status_code=304, headers={"etag": tag}) if tag in wanted else None

    def answer(self, snapshot: FleetSnapshot, body: JsonObject, *, is_live: bool = False) -> Response:
        """Makes a response from `body` and the fields that every answer has. If `body` has data from outside the
        snapshot, pass `is_live` to omit the snapshot's ETag."""
        whole = {
            "cluster": snapshot.cluster,
            "group": snapshot.group,
            "sequence": snapshot.sequence,
            "age_seconds": self.age_seconds(snapshot),
            "verdict": encoded(self.source.verdicts.current().main),
            **body,
        }
        headers = {"cache-control": "no-cache"} | ({} if is_live else {"etag": self._tag(snapshot)})
        return Response(msgspec.json.encode(whole), headers=headers, media_type="application/json")

    def current_tag(self) -> bytes | None:
        snapshot = self.source.latest()
        return None if snapshot is None else self._tag(snapshot).encode()

    def _tag(self, snapshot: FleetSnapshot) -> str:
        old = "" if self.source.verdicts.current() is snapshot.verdict else "-old"
        return f'W/"{self._life}-{snapshot.sequence}{old}"'


def _question(rpc: str, method: str, params: JsonObject) -> Question:
    return Question(Role.EXTERNAL, rpc, method, params=params, deadline_ms=2000)


def api_of(request: Request) -> Api:
    # As a FastAPI dependency, this would take a tenth of the time of a small answer.
    api: Api = request.app.state.api
    return api
