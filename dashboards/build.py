"""The table of dashboards, and one of them as the text of its JSON file."""

import json
from collections.abc import Callable, Mapping

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards import fleet, group, storage, worker
from dashboards.board import Board

__all__ = ["DASHBOARDS", "to_json"]

DASHBOARDS: Mapping[str, Callable[[], Board]] = {
    "fleet": fleet.build,
    "group": group.build,
    "worker": worker.build,
    "storage": storage.build,
}
"""Name of the JSON file to what builds its dashboard."""


def to_json(board: Board) -> str:
    """The file's text, the same at every call."""
    return json.dumps(board.build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"
