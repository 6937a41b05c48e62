"""What every route of the API answers with: the last snapshot, its age and tag, the rows that are encoded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse

from kctl.http.api.answers import lag_rows, offset_rows
from kctl.http.api.streams import Streams
from kctl.http.source import SnapshotSource
from kctl.master.snapshot import FleetSnapshot, Reduced
from kctl_agent.errors import Busy, NotReady
from kctl_agent.replies.encode import encoded
from kctl_agent.rpc.messages import Request as Question
from kctl_agent.rpc.messages import Role, reducer_method
from kctl_agent.rpc.wire import JsonObject

_LIVE_AT_A_TIME = 8
_LIVE_DEADLINE_MS = 2000


class _OncePerSnapshot:
    """The rows of the last snapshot that was asked for: of thousands of partitions they are encoded once, not for each
    request. They are shared, and never changed."""

    def __init__(self, rows_of: Callable[[FleetSnapshot], list[JsonObject]]) -> None:
        self._rows_of = rows_of
        self._last: tuple[FleetSnapshot, list[JsonObject]] | None = None

    def of(self, snapshot: FleetSnapshot) -> list[JsonObject]:
        if self._last is None or self._last[0] is not snapshot:
            self._last = snapshot, self._rows_of(snapshot)
        return self._last[1]


class Api:
    """Belongs to one event loop. `life` distinguishes this master from its successors."""

    def __init__(self, source: SnapshotSource, streams: Streams, life: str) -> None:
        self.source = source
        self.streams = streams
        self.offset_rows = _OncePerSnapshot(lambda snapshot: offset_rows(snapshot.offset_checker.result))
        self.lag_rows = _OncePerSnapshot(lambda snapshot: lag_rows(snapshot, snapshot.offset_checker.result))
        self._life = life
        self._asking = 0

    def latest(self) -> FleetSnapshot:
        """The last snapshot. Raises NotReady: there is none yet."""
        snapshot = self.source.latest()
        if snapshot is None:
            raise NotReady("the first collection is not finished yet")
        return snapshot

    async def ask(self, command: str) -> Reduced[Any]:
        """What the fleet answers now, with `?live=1`, to a command of `kctl.master.reduction`. Raises Busy: so many
        questions are under way already."""
        if self._asking >= _LIVE_AT_A_TIME:
            raise Busy(f"{_LIVE_AT_A_TIME} live questions are under way already: ask again, or without live")
        self._asking += 1
        try:
            question = Question(Role.EXTERNAL, command, reducer_method(command), deadline_ms=_LIVE_DEADLINE_MS)
            return await self.source.ask(question)
        finally:
            self._asking -= 1

    def age_seconds(self, snapshot: FleetSnapshot) -> float:
        return max(self.source.clock() - snapshot.taken_at, 0.0)

    def unchanged(self, snapshot: FleetSnapshot, if_none_match: str | None) -> Response | None:
        """304 for a client that has the answer of this snapshot already."""
        tag = self._tag(snapshot)
        wanted = [each.strip() for each in (if_none_match or "").split(",")]
        return Response(status_code=304, headers={"etag": tag}) if tag in wanted else None

    def answer(self, snapshot: FleetSnapshot, body: JsonObject, *, is_live: bool = False) -> JSONResponse:
        """`body` behind what every answer begins with, the verdict without what else is wrong among it. A live one has
        no tag: the next is another one."""
        whole = {
            "cluster": snapshot.cluster,
            "group": snapshot.group,
            "sequence": snapshot.sequence,
            "age_seconds": self.age_seconds(snapshot),
            "verdict": encoded(self.source.verdicts.current().main),
            **body,
        }
        headers = {"cache-control": "no-cache"}
        return JSONResponse(whole, headers=headers if is_live else {"etag": self._tag(snapshot), **headers})

    def _tag(self, snapshot: FleetSnapshot) -> str:
        """Of a snapshot that has become too old it is another one, for the verdict is."""
        old = "" if self.source.verdicts.current() is snapshot.verdict else "-old"
        return f'W/"{self._life}-{snapshot.sequence}{old}"'


def api_of(request: Request) -> Api:
    """Not a FastAPI dependency, whose resolving would take a tenth of the time of a small answer."""
    api: Api = request.app.state.api
    return api
