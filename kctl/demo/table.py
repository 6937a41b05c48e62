"""The audit of the table of a demo with `--storage lake`, by delta-rs, which has written none of its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kafka import KafkaAdminClient

from kctl.demo.audit import Audit, Place, audit_places
from kctl_agent.storage.chunk import Binding

if TYPE_CHECKING:
    from kctl_agent.storage.lake.storage import LakeStorage


def cluster_of(bootstrap_servers: str) -> str:
    """Returns the id of the cluster. Raises KafkaError."""
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        return str(admin.describe_cluster()["cluster_id"])


def audit_table(storage: LakeStorage, owner: Binding, produced: Mapping[tuple[str, int], int]) -> Audit:
    """Compares the table's rows with what was produced, offset by offset. Raises StorageUnusable."""
    storage.bind(owner)
    stored_offsets = {tp: stored.next for tp, stored in storage.stored_offsets(produced).items()}
    return audit_places(_places(storage), produced, stored_offsets=stored_offsets)


def _places(storage: LakeStorage) -> Iterator[Place]:
    with storage.table.latest() as table:
        columns = table.to_pyarrow_table(columns=["topic", "partition", "offset"])
    yield from zip(*(columns[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True)
