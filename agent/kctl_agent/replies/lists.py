"""Questions that are answered by a list of rows, of which each worker has some or all: for master and command line."""

from __future__ import annotations

from typing import NamedTuple


class ListQuestion(NamedTuple):
    """A question whose answers are joined row by row; of two rows with the same key the newest counts."""

    title: str
    """What it asks, for `kctl rpc --help`."""
    reply: str
    """The reply's type by its name, so that only that of the command which is run is imported. Its field `rows` has a
    tuple of dataclasses, whose fields are the columns of `kctl rpc`."""
    key: tuple[str, ...]


_REPLIES = "kctl_agent.replies"
LISTS = {
    "metadata_brokers": ListQuestion("The Kafka brokers", f"{_REPLIES}.metadata.BrokersReply", ("node_id",)),
    "metadata_topics": ListQuestion(
        "Leader and replicas of each partition", f"{_REPLIES}.metadata.TopicsReply", ("topic", "partition")
    ),
}
