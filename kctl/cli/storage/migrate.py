"""`kctl storage migrate`: moves a fleet's storage to another Kafka cluster."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kctl.audit import fleet_log, operation
from kctl.cli.command import CONFIG, YES, Command, Option
from kctl.cli.options import load_fleet
from kctl.cli.output import confirm, echo
from kctl.cli.table import columns, render
from kctl.dead_letters.storage import opened, opened_lake
from kctl.errors import KctlError, OperationRefused
from kctl.terminal import line_of
from kctl_agent.rpc.messages import number_of
from kctl_agent.storage.chunk import Binding, OtherGroup, StoredOffset

if TYPE_CHECKING:
    from kctl.config.sections import Config
    from kctl.kafka.client.connection import ClusterConnection
    from kctl.kafka.client.layout import Partition, Topic
    from kctl.kafka.mirror import Cluster
    from kctl.kafka.reset import OffsetChange
    from kctl_agent.storage.base import OffsetStore

_TIMEOUT_SECONDS = 10.0


def _run(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    fleet = load_fleet(options, env)
    storage: OffsetStore
    with _connected(fleet) as new, (opened_lake if fleet.storage.kind.is_table else opened)(fleet) as storage:
        target = _Target(fleet, new, storage)
        changes = target.committed() if options.from_ is None else target.copied(options.from_)
        echo("\n".join(render(columns("topic >partition >old >new error"), [tuple(each) for each in changes])))
        if failed := sum(each.error is not None for each in changes):
            raise OperationRefused(f"{number_of(failed, 'partition')} cannot be taken over: nothing was changed")
        if options.dry_run:
            return
        if not options.yes:
            confirm(f"Take {storage.identity} to these offsets of {fleet.kafka.bootstrap_servers}?")
        params = {"offsets": [list(each[:4]) for each in changes]}
        with operation(fleet_log(fleet), "storage migrate", params) as running:
            target.take(changes)
            running.text = f"{number_of(len(changes), 'partition')} taken over"
    echo(running.text)


@contextmanager
def _connected(fleet: Config) -> Iterator[ClusterConnection]:
    from kctl.kafka.client.access import of_fleet
    from kctl.kafka.client.connection import ClusterConnection
    from kctl.kafka.reset import refuse_active

    with ClusterConnection(of_fleet(fleet), _TIMEOUT_SECONDS) as connection:
        connection.open()
        refuse_active(connection, fleet.kafka.group)
        yield connection


@dataclass(frozen=True, slots=True)
class _Target:
    fleet: Config
    connection: ClusterConnection
    storage: OffsetStore

    def copied(self, file: Path) -> list[OffsetChange]:
        from kctl.config.load import load
        from kctl.kafka.mirror import translated
        from kctl.kafka.reset import OffsetChange

        before = load(file, {})
        with (
            _connected(before) as connection,
            self._cluster(connection) as old,
            self._cluster(self.connection) as new,
            line_of(sys.stderr) as show,
        ):
            self._bind_to(Binding(before.kafka.group, connection.cluster_id))
            stored = self.storage.stored_offsets(_partitions(old.topics))
            changes = []
            for number, (key, each) in enumerate(sorted(stored.items()), start=1):
                show(f"partition {number} of {len(stored)} …")
                try:
                    is_taken = each.topic_id is not None and each.topic_id == new.topics[key[0]].topic_id
                    offset = each.next if is_taken else translated(old, new, key, each.next)
                    changes.append(OffsetChange(*key, each.next, offset))
                except KctlError as error:
                    changes.append(OffsetChange(*key, each.next, None, str(error)))
            return self._forward(changes, new.topics)

    def _forward(self, changes: list[OffsetChange], topics: Mapping[str, Topic]) -> list[OffsetChange]:
        is_table = self.fleet.storage.kind.is_table
        if is_table:  # it keeps offsets for each cluster
            self.storage.bind(self._owner)
        held = self.storage.stored_offsets([each[:2] for each in changes])
        return [
            each._replace(error=f"the storage already has it up to offset {of_new.next}")
            if (of_new := held.get(each[:2])) is not None
            and each.error is None
            and of_new.topic_id == topics[each.topic].topic_id  # otherwise it is an offset of the old cluster
            and (is_table or of_new.topic_id is not None)
            and of_new.next > (each.new or 0)
            else each
            for each in changes
        ]

    def committed(self) -> list[OffsetChange]:
        from kctl.kafka.client.reasons import or_raise
        from kctl.kafka.offsets import EARLIEST, LATEST, Committed, committed, log_offsets
        from kctl.kafka.reset import OffsetChange

        group, topics = self.fleet.kafka.group, self._topics(self.connection)
        keys = sorted(_partitions(topics))
        found = or_raise(committed(self.connection, {group: keys})[group])
        starts, ends = (log_offsets(self.connection, topics, keys, at) for at in (EARLIEST, LATEST))
        changes = []
        for key in keys:
            known, start, end = found.get(key, Committed(None)), starts[key], ends[key]
            error = known.error or start.error or end.error
            if error is None and known.offset is None:
                error = f"group {group} has committed nothing there: give --from, or use `kctl kafka reset-offsets`"
            elif error is None and not (start.offset or 0) <= (known.offset or 0) <= (end.offset or 0):
                error = (
                    f"offset {known.offset} is outside its log, {start.offset} to {end.offset}: use `kctl kafka "
                    "reset-offsets`"
                )
            changes.append(OffsetChange(*key, None, known.offset, error))
        return self._forward(changes, topics)

    def take(self, changes: list[OffsetChange]) -> None:
        """Sets the group's offsets, then the storage's offsets and owner (group and cluster). An interrupted call can
        be repeated. Raises OperationRefused, or StoredOffsetMoved if a running fleet has just moved an offset."""
        from kctl.kafka.reset import apply

        self.connection.deadline.renew()
        topics, owner = self._topics(self.connection), self._owner
        failed = next((each for each in apply(self.connection, owner.group, changes) if each.error), None)
        if failed is not None:
            raise OperationRefused(f"the group's offset of {failed.topic}-{failed.partition}: {failed.error}")
        if self.fleet.storage.kind.is_table:  # it keeps offsets for each cluster
            self.storage.bind(owner)
        seen = self.storage.stored_offsets([each[:2] for each in changes])
        self.storage.init_offsets(
            [
                StoredOffset(*each[:2], topics[each.topic].topic_id, each.new)
                for each in changes
                if each.new is not None
            ],
            seen,
        )
        self.storage.bind(owner, take_over=True)

    @property
    def _owner(self) -> Binding:
        return Binding(self.fleet.kafka.group, self.connection.cluster_id)

    def _bind_to(self, owner: Binding) -> None:
        try:
            self.storage.bind(owner)
        except OtherGroup as error:
            raise OperationRefused(f"--from names another cluster than the storage's: {error}") from None

    @contextmanager
    def _cluster(self, connection: ClusterConnection) -> Iterator[Cluster]:
        from kctl.kafka.consume import reading
        from kctl.kafka.mirror import Cluster

        with reading(connection.access, is_read_committed=True, timeout_seconds=_TIMEOUT_SECONDS) as read:
            yield Cluster(connection, self._topics(connection), read)

    def _topics(self, connection: ClusterConnection) -> dict[str, Topic]:
        from kctl.kafka.client.layout import require, topics_of

        connection.deadline.renew()
        topics = topics_of(connection.metadata(list(self.fleet.kafka.topics)))
        return {name: require(topics, name) for name in self.fleet.kafka.topics}


def _partitions(topics: Mapping[str, Topic]) -> list[Partition]:
    return [(topic.name, each.partition) for topic in topics.values() for each in topic.partitions]


COMMAND = Command(
    "migrate",
    "Move a storage to the cluster that kctl.toml names now.",
    (
        Option(("--from",), "the fleet's former kctl.toml, with the old cluster", "path", "FILE"),
        CONFIG,
        Option(("--dry-run",), "only show the offsets", "flag"),
        YES,
    ),
    "kctl storage migrate --from kctl.old.toml --dry-run\nkctl storage migrate --from kctl.old.toml",
    "If the topics were copied there with keys, values and timestamps, as MirrorMaker does, use --from: each "
    "partition then continues after the copy of the last stored message, so no message is lost or stored twice. "
    "Without --from, each partition continues at the group's committed offset in the new cluster, which you can set "
    "with `kctl kafka reset-offsets`. Stop the fleet first, and start it afterwards. Pending messages stay in the "
    "storage. The command sets all partitions or none.",
    run=_run,
)
