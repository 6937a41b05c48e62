"""The composition root: makes each part of a master and passes it to the parts that need it."""

from __future__ import annotations

import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kctl import __version__
from kctl.audit import fleet_log
from kctl.config.clusters import by_group
from kctl.config.effects import shown_settings
from kctl.config.sections import Config, HttpSection
from kctl.dead_letters.sending import sending
from kctl.dead_letters.storage import served_dead_letters
from kctl.dead_letters.workbench import Workbench
from kctl.errors import ConfigError
from kctl.exporter import Exposition
from kctl.groups.advising import GroupAdvisers
from kctl.groups.broker_cache import BrokerCache
from kctl.groups.collector import CollectedCluster, Collectors, Prepared
from kctl.hosts.hosts import Hosts
from kctl.hosts.membership import HostsMember
from kctl.hosts.roster import Host
from kctl.http.access import AccessRights, access_of, read_tokens
from kctl.http.app import create_app
from kctl.http.groups_api import GroupsView
from kctl.http.server import HttpServer
from kctl.http.source import SnapshotSource
from kctl.kafka.client.access import of_fleet
from kctl.master.collector import Collector
from kctl.master.control.router import Router, RpcCounts, counted
from kctl.master.control.server import ControlServer
from kctl.master.control.service import MasterService
from kctl.master.events import EventFeed
from kctl.master.history import FleetHistory
from kctl.master.launch import launches, supervision_policies
from kctl.master.members import Agents, Members
from kctl.master.operations.base import operation_events
from kctl.master.operations.context import Context
from kctl.master.operations.operation_log import OperationLog
from kctl.master.pauses import Pauses
from kctl.master.reduction import STALE_SECONDS
from kctl.master.supervisor import Supervisor
from kctl.master.table_maintenance import TableMaintenance
from kctl.master.verdict import Verdicts
from kctl.operations import operations as operations_by_name
from kctl.rpc.fan_out import AgentPool
from kctl.schemas import decoder

if TYPE_CHECKING:
    from kctl.hosts.peers import PeersAccess


@dataclass(frozen=True, slots=True)
class MasterParts:
    pool: AgentPool
    supervisor: Supervisor
    collector: Collector
    context: Context
    operations: OperationLog
    control: ControlServer
    http: HttpServer
    groups: Collectors
    wanted_groups: Prepared
    maintenance: TableMaintenance
    hosts: Hosts | None


def wired(
    config: Config,
    jars: Sequence[Path],
    worker_command: Sequence[str],
    reread: Callable[[], Config],
    broker_cache: BrokerCache,
    http_socket: socket.socket,
    access: AccessRights,
) -> MasterParts:
    pool, feed, counts = AgentPool(), EventFeed(), RpcCounts()
    operation_counts: Counter[tuple[str, str]] = Counter()
    http_refusals: Counter[str] = Counter()
    pauses = Pauses(config.fleet.data_dir / "pauses.json")
    agents = Agents(config.fleet.run_dir, pool)
    supervisor = Supervisor(
        launches(config, jars, worker_command),
        supervision_policies(config),
        agents.ping,
        at_start=pauses.at_start,
        paused=pauses.rows,
    )
    members = Members(config.fleet.run_dir, supervisor.kinds, supervisor.status, pool)
    groups = Collectors()
    wanted_groups = groups.prepared(_all_groups(config))
    advisers = GroupAdvisers(config.advice)
    groups.prepare.append(advisers.prepare)
    hosts = hosts_of(config, http_socket.getsockname()[1])
    collector = Collector(
        config,
        members,
        broker_cache,
        supervisor,
        feed,
        counts.stats,
        operations=operation_counts,
        http_refused=http_refusals,
        groups=groups.whole,
        hosts=None if hosts is None else hosts.answer,
    )
    exposition = Exposition(collector.latest)
    history = FleetHistory(config.collect.interval_seconds)
    collector.prepare += [exposition.prepare, history.add]
    context = Context(
        config, supervisor, agents, members, pauses, jars, worker_command, reread, partitions=collector.partitions
    )
    operations = OperationLog(operations_by_name(), context, fleet_log(config), operation_counts)
    operations.listeners.append(lambda operation: feed.publish(operation_events(operation)))
    max_age_seconds = max(STALE_SECONDS, 3 * config.collect.interval_seconds + config.collect.timeout_seconds)
    verdicts = Verdicts(collector.latest, max_age_seconds)
    service = MasterService(members, broker_cache, supervisor.status, verdicts, feed, hosts)
    answer = counted(service.answer, counts, lambda reply: reply.get("complete", True))
    source = SnapshotSource(
        latest=collector.latest,
        fleet=config.fleet.name,
        table_uri=config.storage.uri if config.storage.mode == "lake" else "",
        metrics=exposition.page,
        history=history,
        settings=lambda: shown_settings(context.config),
        feed=feed,
        ask=counted(service.ask, counts, lambda reduced: reduced.complete),
        answer=answer,
        operations=operations,
        groups=GroupsView(latest=groups.latest, describe=groups.describe, advisers=advisers, clock=time.monotonic),
        verdicts=verdicts,
        hosts=hosts,
        for_other_host=service.for_other_host,
        dead_letters=Workbench(
            lambda: served_dead_letters(context.config),
            lambda: fleet_log(context.config),
            lambda topic: sending(context.config, topic),
            operations.attend,
            decoder=decoder(config),
        ),
    )
    http = HttpServer(create_app(source, access, refusals=http_refusals), http_socket, access)
    # A cycle: HTTP offers operations, and one of them, `reload`, renews HTTP's access rights.
    context.use_http = partial(_use_http, http, hosts, config)
    context.prepare_groups = lambda new: partial(groups.use, groups.prepared(_all_groups(new)))
    context.hosts = hosts
    control = ControlServer(Router(answer, operations).answer)
    tables = TableMaintenance(lambda: context.config, collector.latest)
    return MasterParts(
        pool, supervisor, collector, context, operations, control, http, groups, wanted_groups, tables, hosts
    )


def _all_groups(config: Config) -> list[CollectedCluster]:
    kafka, exporter, checkpoints = config.kafka, config.exporter, by_group(config.checkpoints)
    if not exporter.all_groups:
        if not checkpoints:
            return []
        exporter = replace(exporter, groups=())
    return [CollectedCluster(kafka.cluster, of_fleet(config), exporter, config.status, (kafka.group,), checkpoints)]


def _use_http(server: HttpServer, hosts: Hosts | None, config: Config, settings: HttpSection) -> list[str]:
    access = access_of(settings, config.path.parent)
    if hosts is not None:
        with_access(hosts.use, config)
    return server.use(access)


T = TypeVar("T")
_PORT = re.compile(r":\d+\Z")


def hosts_of(config: Config, port: int) -> Hosts | None:
    """Returns the connection to other hosts, not yet started, or None for a fleet on one host. Raises ConfigError."""
    settings = config.hosts
    if not settings.url:
        return None
    from kctl.hosts.peers import Peers  # with httpcore, which a fleet on one host does without

    url = settings.url if _PORT.search(settings.url) else f"{settings.url}:{port}"
    me = Host(settings.own_name, url, time.time_ns(), __version__)
    group = settings.group or f"{config.kafka.group}.kctl-masters"
    member = HostsMember(of_fleet(config), group, config.kafka.topics[0], me, settings.forget_seconds)
    return Hosts(member, with_access(Peers, config), me, (config.kafka.cluster, config.kafka.group))


def with_access(use: Callable[[PeersAccess], T], config: Config) -> T:
    """Calls `use` with the current tokens and certificates. Raises ConfigError."""
    try:
        return use(_peers_access(config))
    except OSError as error:  # ssl.SSLError is one
        file = config.hosts.ca_file
        raise ConfigError(f"hosts.ca_file {file} cannot be used: {error.strerror or error}") from None


def _peers_access(config: Config) -> PeersAccess:
    from kctl.hosts.peers import PeersAccess  # see above

    settings, folder = config.hosts, config.path.parent

    def tokens(setting: str, name: str) -> tuple[str, ...]:
        return tuple(each.secret for each in read_tokens(folder / name, setting, may_act=False)) if name else ()

    return PeersAccess(
        tokens("hosts.token_file", settings.token_file),
        tokens("hosts.operations_token_file", settings.operations_token_file),
        str(folder / settings.ca_file) if settings.ca_file else None,
        settings.allow_plain,
    )
