"""Connects to the brokers of an application's queries, reads log offsets, and commits how far the queries have read."""

import json
import re
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from kctl_agent.attached.partition_offsets import answered_offsets
from kctl_agent.kafka.clients import forget_coordinators
from kctl_agent.kafka.security import Security

_MAX_DEPTH: Final = 200
_SERVERS: Final = "kafka.bootstrap.servers"
Partition = tuple[str, int]


def log_bounds(admin: Any, partitions: Collection[Partition]) -> tuple[dict[Partition, int], dict[Partition, int]]:
    from kafka import TopicPartition
    from kafka.admin import OffsetSpec

    def asked(spec: OffsetSpec) -> dict[Partition, int]:
        found, _ = answered_offsets(admin, [TopicPartition(*each) for each in partitions], spec)
        return {(tp.topic, tp.partition): at.offset for tp, at in found.items()}

    return asked(OffsetSpec.EARLIEST), asked(OffsetSpec.LATEST)


def last_progress(query: Any) -> str | None:
    if not hasattr(query, "_jsq"):  # Spark Connect
        found = query.lastProgress  # a dict; since Spark 4 a subclass whose ids `json.dumps` cannot encode
        return None if found is None else str(getattr(found, "json", None) or json.dumps(found))
    progress = query._jsq.lastProgress()  # noqa: SLF001 - the Python property changes its type between versions
    return None if progress is None else str(progress.json())


def options_of(query: Any) -> list[dict[str, str]]:
    """Returns the options of the Kafka sources in a query's plan, or an empty list if they are unknown."""
    try:
        plan = query._jsq.streamingQuery().analyzedPlan()  # noqa: SLF001 - there is no public way to a query's options
    except Exception:  # Spark Connect, or a version that calls it otherwise: then arguments of `attach` are needed
        return []
    waiting, seen, found = [plan], 0, []
    while waiting and seen < _MAX_DEPTH:
        node, seen = waiting.pop(), seen + 1
        if node.getClass().getSimpleName().startswith("StreamingRelation"):
            try:
                options = {str(key): str(value) for key, value in dict(node.extraOptions()).items()}
            except Exception:  # a relation of another kind of source
                options = {}
            if _SERVERS in options:
                found.append(options)
        children = node.children()
        waiting += [children.apply(i) for i in range(children.size())]
    return found


def elsewhere(options: Mapping[str, Collection[Mapping[str, str]]], own: str | Collection[str]) -> set[str]:
    """Returns the ids of the queries that read another cluster than `own`, a list of servers. Lists that share a server
    belong to one cluster. If all queries have the same list, assumes that they read the cluster of `own`."""
    clusters = {query: {_servers(each[_SERVERS]) for each in found} for query, found in options.items()}
    if len(set().union(*clusters.values())) < 2:
        return set()
    return {query for query, found in clusters.items() if not all(each & _servers(own) for each in found)}


def _servers(servers: str | Collection[str]) -> frozenset[str]:
    return frozenset(each.strip() for each in (servers.split(",") if isinstance(servers, str) else servers))


class NotTranslatable(Exception):
    pass


def settings_of(options: Mapping[str, str]) -> dict[str, Any]:
    option = {key.lower().removeprefix("kafka."): value for key, value in options.items()}.get
    protocol = (option("security.protocol") or "PLAINTEXT").upper()
    security = Security(protocol)
    if security.is_encrypted:
        pem = _pem_file(option, "keystore")
        security = security._replace(
            ca_file=_pem_file(option, "truststore"),
            certificate_file=pem,
            key_file=pem,
            key_password=option("ssl.key.password"),
            check_hostname=option("ssl.endpoint.identification.algorithm") != "",
        )
    if security.is_authenticated:
        mechanism, login = option("sasl.mechanism") or "GSSAPI", option("sasl.jaas.config") or ""
        user, password = (_in_login(login, name) for name in ("username", "password"))
        if not (mechanism == "PLAIN" or mechanism.startswith("SCRAM-")) or user is None or password is None:
            raise NotTranslatable(f"kafka.sasl.mechanism {mechanism} with this kafka.sasl.jaas.config")
        security = security._replace(mechanism=mechanism, username=user, password=password)
    return {"bootstrap_servers": option("bootstrap.servers"), **security.client_settings()}


def _pem_file(option: Callable[[str], str | None], store: str) -> str | None:
    kind, path = option(f"ssl.{store}.type") or "JKS", option(f"ssl.{store}.location")
    if option(f"ssl.{store}.certificate.chain") or option(f"ssl.{store}.certificates"):
        raise NotTranslatable(f"certificates in the text of kafka.ssl.{store}.*")
    if path is not None and kind.upper() != "PEM":
        raise NotTranslatable(f"kafka.ssl.{store}.type {kind}")
    return path


def _in_login(login: str, name: str) -> str | None:
    found = re.search(rf'\b{name}\s*=\s*"((?:[^"\\]|\\.)*)"', login)
    return None if found is None else re.sub(r"\\(.)", r"\1", found[1])


_EVERYTHING_SECONDS: Final = 86_400.0
"""Brokers drop offsets after `offsets.retention.minutes`, so all are committed again this often."""
_EMPTY: Final = frozenset({"Empty", "Dead", ""})


class ShadowGroup:
    """A group without members. kctl commits an application's progress to it, so that tools see it. Not thread-safe."""

    def __init__(self, admin: Any, group: str) -> None:
        self._admin = admin
        self._group = group
        self._done: dict[Partition, int] = {}
        self._all_since = time.monotonic()

    def commit(self, positions: Mapping[Partition, int]) -> dict[Partition, int] | None:
        """Commits changed positions and returns all committed offsets. If the group has members, returns None and does
        not commit. Raises KafkaError."""
        from kafka.errors import KafkaError

        try:
            return self._commit(positions)
        except KafkaError:
            forget_coordinators(self._admin)
            raise

    def _commit(self, positions: Mapping[Partition, int]) -> dict[Partition, int] | None:
        from kafka import OffsetAndMetadata, TopicPartition
        from kafka.errors import NoError

        if time.monotonic() - self._all_since >= _EVERYTHING_SECONDS:
            self._all_since = time.monotonic()
            self._done.clear()
        due = {partition: offset for partition, offset in positions.items() if self._done.get(partition) != offset}
        if not due:
            return dict(self._done)
        described = self._admin.describe_groups([self._group])[self._group]
        if str(described.get("group_state", "")) not in _EMPTY:
            self._done.clear()
            return None
        outcomes = self._admin.alter_group_offsets(
            self._group, {TopicPartition(*each): OffsetAndMetadata(offset, "", -1) for each, offset in due.items()}
        )
        for error in outcomes.values():
            if error is not NoError:
                raise error(f"the offsets of group {self._group} were not committed")
        self._done.update(due)
        return dict(self._done)
