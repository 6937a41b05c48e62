"""`seek`: continues reading a topic from another position."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from operator import itemgetter

from kctl.errors import KctlError, OperationRefused, OperationUnknown
from kctl.fields import host_and_name
from kctl.kafka.target import position
from kctl.master.operations.fleet_operation import BATCH_SECONDS, Caller, Context, Done, FleetOperation, OnOne, Report
from kctl.operations.pause import check_read
from kctl_agent.errors import BadParams
from kctl_agent.rpc.params import param
from kctl_agent.rpc.wire import JsonObject

_EACH = re.compile(r"\d{1,9}=[^=,]+(,\d{1,9}=[^=,]+)*")  # such as 0=1200,3=55


class SeekTopic(FleetOperation, rpc="seek", for_all_hosts=True, shared_by_hosts="topic", limit_seconds=BATCH_SECONDS):
    """Continue reading a topic from another position.

    kctl first shows which messages will be skipped or handled again, and asks for confirmation. Each worker that owns
    a partition of the topic moves the partition's committed offset and stored offset together. Messages in the storage
    are still handled. kctl resolves `latest` and times during the preview (with `--yes`: when the seek begins). A time
    without a zone is in UTC. After `--deadline`, no worker begins to move offsets. With several hosts, the seek applies
    to all hosts in turn, unless you pass `--host`.

    kctl seek --topic orders --to earliest --dry-run
    kctl seek --topic orders --partition 3 --to 1200
    kctl seek --topic orders --to 0=1200,3=55
    kctl seek --topic orders --to 2026-11-21T06:00:00Z
    """

    topic: str = param("the topic", metavar="NAME")
    to: str = param("earliest, latest, an offset, a time, or 0=1200,3=55", metavar="WHERE")
    partition: int | None = param("only this partition of the topic", metavar="N", least=0, default=None)
    dry_run: bool = param("only preview the changes", default=False)

    def touches(self, context: Context) -> frozenset[str]:
        check_read(context, self.topic, self.partition)
        return frozenset({"reading"})

    async def shared(self, context: Context, _params: JsonObject, on_one: OnOne) -> dict[str, JsonObject]:
        owners, missing_hosts = await context.owners_on_hosts(self.topic)
        targets = _targets(self.to, self.partition, {*owners, *context.partitions(self.topic)})
        self._check_owned(targets, owners, missing_hosts)
        shares: dict[str, list[str]] = {}
        for partition, to in targets.items():
            shares.setdefault(host_and_name(str(owners[partition]))[0], []).append(f"{partition}={to}")
        given: dict[str, JsonObject] = {}
        for host, share in shares.items():
            given[host] = {"topic": self.topic, "to": ",".join(share), "dry_run": True}
            if not self.dry_run:
                # A dry run resolves all positions before the first host moves an offset.
                planned = await _planned(on_one, host, given[host])
                fixed = ",".join(f"{row['partition']}={row['to']}" for row in planned["rows"])
                given[host] = {"topic": self.topic, "to": fixed}
        return given

    def joined(self, results: dict[str, JsonObject]) -> JsonObject:
        rows = [{**row, "host": host} for host, result in results.items() for row in result["rows"]]
        return {"dry_run": self.dry_run, "rows": sorted(rows, key=itemgetter("partition"))}

    def _check_owned(
        self, targets: Iterable[int], owners: Mapping[int, str | None], missing_hosts: Iterable[str] = ()
    ) -> None:
        missing = [each for each in targets if owners.get(each) is None]
        if missing or not targets:
            where = ", ".join(f"{self.topic}-{each}" for each in missing) or f"topic {self.topic}"
            why = "wait for a rebalance to end, or see `kctl rpc offset_checker`"
            raise OperationRefused("; ".join([f"no worker owns {where} now: {why}", *missing_hosts]))

    async def carry_out(self, context: Context, _caller: Caller, report: Report) -> Done:
        from kctl.master.operations.context import ended, together

        owners = await context.owners(self.topic)
        targets = _targets(self.to, self.partition, owners)
        self._check_owned(targets, owners)

        async def one(partition: int, to: str, dry_run: bool) -> JsonObject:
            given = {"topic": self.topic, "partition": partition, "to": to, "dry_run": dry_run}
            return await context.run_on(str(owners[partition]), "seek", given, report)

        # Workers move offsets after a batch, so a dry run resolves all targets first. If it fails, no offset moves.
        try:
            planned = await together(one(partition, to, True) for partition, to in targets.items())
        except OperationUnknown as error:
            raise OperationRefused(str(error)) from error
        if self.dry_run:
            return f"it would be: {_texts(planned)}", {"dry_run": True, "rows": [each["result"] for each in planned]}
        fixed = [(each["result"]["partition"], str(each["result"]["to"])) for each in planned]
        outcomes = await ended(one(partition, to, False) for partition, to in fixed)
        done = [each for each in outcomes if not isinstance(each, BaseException)]
        if len(done) < len(outcomes):
            raise _whole([each for each in outcomes if isinstance(each, BaseException)], _texts(done))
        return _texts(done), {"dry_run": False, "rows": [each["result"] for each in done]}


async def _planned(on_one: OnOne, host: str, params: JsonObject) -> JsonObject:
    try:
        return (await on_one(host, params))[1]
    except OperationUnknown as error:  # a dry run changes nothing later
        raise OperationRefused(str(error)) from error


def _whole(errors: list[BaseException], done: str) -> KctlError:
    kind = OperationUnknown if any(isinstance(each, OperationUnknown) for each in errors) else OperationRefused
    reasons = "; ".join(filter(None, map(str, errors)))
    return kind("; but ".join(filter(None, (done and f"only in part: {done}", reasons))))


def _texts(outcomes: list[JsonObject]) -> str:
    return "; ".join(str(outcome["text"]) for outcome in outcomes)


def _targets(to: str, partition: int | None, all_partitions: Iterable[int]) -> dict[int, str]:
    if not _EACH.fullmatch(to):
        return dict.fromkeys(sorted(all_partitions) if partition is None else [partition], _wire_target(to))
    if partition is not None:
        raise BadParams(f"{to} names its partitions: leave out `partition`")
    return {int(each): _wire_target(place) for each, _, place in (pair.partition("=") for pair in to.split(","))}


def _wire_target(to: str) -> str:
    # The time 2026-11-21T10:00 becomes @1795255200000. It is in UTC unless it has a zone.
    kind, number = position(to)
    return {"offset": str(number), "time": f"@{number}"}.get(kind, kind)
