"""Finds the worker that reads each partition, and the worker's state, for the rules of `kctl.status`. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from kctl.fields import host_and_name
from kctl.reduce.base import BrokerSnapshot
from kctl.rows.columns import Partition
from kctl.rows.hosts import HostsAnswer
from kctl.rows.workers import NOT_GROUP_MEMBERS, AgentState, WorkerRow, WorkerStatus
from kctl.status import Owner

_COMING = frozenset({"starting", "backoff"})
_SHARING = frozenset({AgentState.REBALANCING, AgentState.JOINING, AgentState.ASSIGNED})


def owners(
    rows: Iterable[WorkerRow],
    statuses: Iterable[WorkerStatus],
    trigger_seconds: float,
    members: int | None = None,
    others: Mapping[tuple[str, int], str] | None = None,
    transaction_seconds: Mapping[Partition, float] = MappingProxyType({}),
) -> Callable[[Partition, str | None, int], Owner]:
    """Returns a function that makes a partition's `Owner`. The function takes the partition, its worker on this host
    (or None), and the number of messages that an open transaction blocks. `members` is the group's size (None:
    unknown). `others` is the result of `read_elsewhere`. `transaction_seconds` is the age of each open transaction."""
    rows, statuses = list(rows), list(statuses)
    paused = {status.name: status.paused for status in statuses if status.paused}
    nobody = Owner(None, _of_fleet(rows, statuses), trigger_seconds, members=members)
    elsewhere = {each: Owner(each, "elsewhere", trigger_seconds) for each in {*(others or {}).values()}}
    known = {
        row.name: Owner(
            row.name,
            row.state,
            None if row.kind == "attached" else trigger_seconds,  # its queries have their own triggers
            row.last_batch_seconds,
            row.batch_running_seconds,
            None if row.waiting_for is None else row.waiting_for.what,
        )
        for row in rows
    }

    def owner_or_nobody(partition: Partition, worker: str | None) -> Owner:
        if worker is None:
            return elsewhere[others[partition]] if others and partition in others else nobody
        if worker in paused and any(each.covers(*partition) for each in paused[worker]):
            return Owner(worker, "paused", trigger_seconds)
        return known.get(worker) or Owner(worker, None, trigger_seconds)

    def owner_of(partition: Partition, worker: str | None, behind_transaction: int) -> Owner:
        owner = owner_or_nobody(partition, worker)
        if behind_transaction <= 0:
            return owner
        seconds = transaction_seconds.get(partition)
        return replace(owner, behind_transaction=behind_transaction, transaction_seconds=seconds)

    return owner_of


def read_elsewhere(
    brokers: BrokerSnapshot, hosts: HostsAnswer | None, now_unix: float, session_seconds: float
) -> dict[tuple[str, int], str]:
    """Returns the worker, such as `node-2/worker-0`, of each partition that another host reads. Omits the partitions of
    a host that has been gone for more than `session_seconds`, so that this host assesses them."""
    if hosts is None:
        return {}
    present = {
        row.name
        for row in hosts.rows
        if row.state != "gone" or row.since is None or now_unix - row.since <= session_seconds
    }
    is_other = {
        name: (host := host_and_name(name)[0]) in present and host != hosts.host for name, _ in brokers.assigned
    }
    return {
        (topic, number): name
        for name, assigned in brokers.assigned
        if is_other[name]
        for topic, numbers in assigned.items()
        for number in numbers
    }


def is_handling(rows: Iterable[WorkerRow]) -> bool:
    """Whether this host has a sinker that the user has neither stopped nor paused."""
    return any(
        row.kind == "sinker"
        and row.state != AgentState.PAUSED
        and (row.supervisor is None or row.supervisor.desired == "running")
        for row in rows
    )


def _of_fleet(rows: Iterable[WorkerRow], statuses: Iterable[WorkerStatus]) -> str | None:
    states = {row.state for row in rows if row.kind not in NOT_GROUP_MEMBERS}
    if (
        any(status.state in _COMING for status in statuses if status.kind not in NOT_GROUP_MEMBERS)
        or AgentState.STARTING in states
    ):
        return "starting"
    return "rebalancing" if states & _SHARING else None
