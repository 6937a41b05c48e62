"""Chooses the cluster of `kctl kafka`, connects to it, and checks the named topics."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kctl.errors import ConfigError, NoMaster, UsageError
from kctl.kafka.client.access import ClusterAccess, of_context, of_fleet, plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import Partition, Topic, require, topics_of
from kctl.kafka.target import topic_and_partitions

if TYPE_CHECKING:
    from kctl.config.sections import Config
    from kctl_agent.schemas.decoding import Decoder

_CONTEXT_VARIABLE = "KCTL_CONTEXT"
_NO_CLUSTER = (
    "name a cluster: -b HOST:PORT, --context NAME, or a kctl.toml with -c or KCTL_CONFIG; you have no running fleet"
)


def access(options: argparse.Namespace, env: Mapping[str, str]) -> ClusterAccess:
    """Returns how to reach the cluster that `-b` or a context names, or else the fleet's cluster. If `-b` and a context
    are given, `-b` replaces only the context's servers. Raises UsageError, ConfigError."""
    context = options.context or env.get(_CONTEXT_VARIABLE)
    if context:
        known = of_context(_file_of_contexts(options, env), context, env)
        if options.bootstrap is None:
            return known
        given = _servers(options.bootstrap)
        return known._replace(servers=given.servers, setting=given.setting)
    if options.bootstrap is not None:
        return _servers(options.bootstrap)
    return of_fleet(_fleet_config(options, env), env)


def fleet_group(options: argparse.Namespace, env: Mapping[str, str], named: str) -> str:
    """Returns the fleet's consumer group. Raises ConfigError, and UsageError if there is no fleet. With `-b` or a
    context, this UsageError suggests the options in `named`, such as `-g GROUP, --all`."""
    cluster = _named_cluster(options, env)
    if cluster is None:
        return _fleet_config(options, env).kafka.group
    no_group = f"name a group: {named}, or a kctl.toml with -c or KCTL_CONFIG; `kctl kafka groups {cluster}` lists them"
    try:
        return _fleet_config(options, env, no_group).kafka.group
    except ConfigError:
        from kctl.config.load import contexts_alone

        if contexts_alone(_file_of_contexts(options, env)):
            raise UsageError(no_group) from None
        raise


def decoder(options: argparse.Namespace, env: Mapping[str, str]) -> Decoder | None:
    """Returns the fleet's message decoder, or None if messages are plain bytes. Returns None with `-b` or a context."""
    from kctl import schemas

    return schemas.decoder(_fleet_config(options, env)) if _named_cluster(options, env) is None else None


def audit_log(options: argparse.Namespace, env: Mapping[str, str]) -> Path:
    """Returns the user's audit log if `-b` or a context names the cluster, otherwise the fleet's."""
    from kctl.audit import fleet_log, user_log

    return fleet_log(_fleet_config(options, env)) if _named_cluster(options, env) is None else user_log(env)


def _named_cluster(options: argparse.Namespace, env: Mapping[str, str]) -> str | None:
    if options.bootstrap is not None:
        return f"-b {options.bootstrap}"
    context = options.context or env.get(_CONTEXT_VARIABLE)
    return f"--context {context}" if context else None


def _fleet_config(options: argparse.Namespace, env: Mapping[str, str], no_fleet: str = _NO_CLUSTER) -> Config:
    from kctl import fleets
    from kctl.config.load import load

    try:
        fleet = fleets.find(Path(options.config) if options.config else None, env)
    except NoMaster:
        raise UsageError(no_fleet) from None
    return load(fleet.config, env)


def connected(options: argparse.Namespace, env: Mapping[str, str]) -> ClusterConnection:
    return ClusterConnection(access(options, env), options.timeout)


def _servers(text: str) -> ClusterAccess:
    for server in text.split(","):
        host, colon, port = server.strip().rpartition(":")
        if not colon or not host or not port.isdecimal() or int(port) > 65535:
            raise UsageError(f"-b takes HOST:PORT, several separated by commas, not `{server.strip()}`")
    return plain(text)


def _file_of_contexts(options: argparse.Namespace, env: Mapping[str, str]) -> Path:
    named = options.config or env.get("KCTL_CONFIG")
    if named:
        return Path(named)
    own = Path(env.get("XDG_CONFIG_HOME") or Path.home() / ".config", "kctl", "kctl.toml")
    if own.exists():
        return own
    from kctl import fleets

    try:
        return fleets.find(None, env).config
    except NoMaster:
        raise UsageError(f"give the file of the context: -c kctl.toml or KCTL_CONFIG, or {own}") from None


def required_topics(connection: ClusterConnection, names: list[str]) -> dict[str, Topic]:
    """Opens the connection and returns the named topics. Raises TopicMissing, NotAuthorised."""
    topics = topics_of(connection.open(names))
    return {name: require(topics, name) for name in names}


def required_topic(connection: ClusterConnection, name: str, partition: int | None = None) -> Topic:
    """Opens the connection and returns the topic. Raises TopicMissing, PartitionMissing, NotAuthorised."""
    return require(topics_of(connection.open([name])), name, partition)


def wanted_partitions(connection: ClusterConnection, words: list[str]) -> tuple[dict[str, Topic], list[Partition]]:
    """Opens the connection and returns the topics and partitions of `-t TOPIC[:0,2]`. Raises TopicMissing,
    PartitionMissing, NotAuthorised."""
    chosen = [topic_and_partitions(word) for word in words]
    topics = topics_of(connection.open(sorted({name for name, _ in chosen})))
    wanted: set[Partition] = set()
    for name, numbers in chosen:
        all_of_it = require(topics, name)
        for number in numbers or ():
            require(topics, name, number)
        wanted |= {(name, number) for number in numbers or [each.partition for each in all_of_it.partitions]}
    return topics, sorted(wanted)
