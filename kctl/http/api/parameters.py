"""The parameters that several routes take, each with its bounds."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Header, Query

from kctl.http.api.paging import MAX_ROWS

__all__ = ["AfterName", "AfterNode", "AfterPartition", "IfNoneMatch", "ListParams", "Lists", "Numbers", "Strings"]


class ListParams:
    """The parameters that every list takes."""

    def __init__(
        self,
        live: Annotated[bool, Query(description="Ask the agents now, for at most two seconds.")] = False,
        limit: Annotated[int, Query(ge=1, le=MAX_ROWS, description="The most rows.")] = 1000,
    ) -> None:
        self.live, self.limit = live, limit


def _after(pattern: str) -> Any:
    return Query(max_length=300, pattern=pattern, description="Rows behind this one: `next` of the page before.")


Lists = Annotated[ListParams, Depends()]
AfterPartition = Annotated[str | None, _after(r"^[A-Za-z0-9._-]{1,249}/[0-9]{1,9}$")]
AfterNode = Annotated[str | None, _after(r"^[0-9]{1,9}$")]
AfterName = Annotated[str | None, _after(r"^[A-Za-z0-9._-]{1,64}$")]
IfNoneMatch = Annotated[str | None, Header()]
Strings = Annotated[list[str] | None, Query(max_length=100)]
Numbers = Annotated[list[int] | None, Query(max_length=1000)]
