"""Stored offsets as `txn` actions of a Delta table's log. Pure.

An action has a name and a 64-bit number, and survives checkpoints of the log. If two concurrent commits set the same
name, the table accepts only the first. Every commit of a batch sets `kctl/CLUSTER/GROUP/TOPIC/N`, for each partition N,
to the next offset. `…/version`, `…/topic-id-high` and `…/topic-id-low` have the other fields of `StoredOffset`. Before
a batch stores dead letters of a partition, it sets `…/claim` to a random number to fence earlier batches.
"""

import uuid
from collections.abc import Callable
from urllib.parse import quote, unquote

from kctl_agent.storage.chunk import Binding, StoredOffset, TopicPartition

_HALF = 1 << 64


def app_id(owner: Binding, tp: TopicPartition) -> str:
    topic, partition = tp
    return f"kctl/{quote(owner.cluster_id or '-', safe='')}/{quote(owner.group, safe='')}/{topic}/{partition}"


def claim_id(owner: Binding, tp: TopicPartition) -> str:
    return f"{app_id(owner, tp)}/claim"


def owner_of(name: str) -> tuple[Binding, TopicPartition] | None:
    """Returns the owner and partition of a name that `app_id` made, or None for other names."""
    prefix, *parts = name.split("/")
    if prefix != "kctl" or len(parts) != 4 or not parts[3].isdecimal():
        return None
    cluster, group, topic, partition = parts
    return Binding(unquote(group), None if cluster == "-" else unquote(cluster)), (topic, int(partition))


def read_offset(read: Callable[[str], int | None], owner: Binding, tp: TopicPartition) -> StoredOffset | None:
    name = app_id(owner, tp)
    following = read(name)
    if following is None:
        return None
    return StoredOffset(*tp, _topic_id(read, name), following, read(f"{name}/version") or 0)


def transactions(owner: Binding, before: StoredOffset | None, after: StoredOffset) -> dict[str, int]:
    """Returns the changes from `before` to `after`, and always the next offset, so that concurrent commits conflict."""
    name = app_id(owner, after.tp)
    written = {name: after.next}
    if before is None or before.version != after.version:
        written[f"{name}/version"] = after.version
    if before is None or before.topic_id != after.topic_id:
        high, low = divmod(uuid.UUID(after.topic_id).int if after.topic_id else 0, _HALF)
        written |= {f"{name}/topic-id-high": _signed(high), f"{name}/topic-id-low": _signed(low)}
    return written


def _topic_id(read: Callable[[str], int | None], name: str) -> str | None:
    high, low = (read(f"{name}/topic-id-{half}") or 0 for half in ("high", "low"))
    return str(uuid.UUID(int=high % _HALF * _HALF + low % _HALF)) if high or low else None


def _signed(half: int) -> int:
    return half - _HALF if half >= _HALF // 2 else half
