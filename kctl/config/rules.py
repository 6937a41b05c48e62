"""Checks settings that depend on each other. Each error names all settings concerned. If the storage is a table, also
checks its location and rejects settings that do not apply to tables."""

import re
from collections.abc import Iterator
from itertools import chain
from urllib.parse import unquote, urlsplit

from kctl.config.clusters import checkpoint_mistakes
from kctl.config.forms import size_bytes
from kctl.config.sections import Config

KAFKA_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")


def mistakes(config: Config) -> list[str]:
    checkpoints = checkpoint_mistakes(config.checkpoints, [config.kafka.cluster], config.kafka.group)
    rules = (_of_times, _of_memory, _of_handler, _of_storage, _of_hosts, _of_schemas)
    found = chain(*(rule(config) for rule in rules), checkpoints)
    return [f"{config.path}: {each}" for each in found]


def _of_times(config: Config) -> Iterator[str]:
    kafka, workers = config.kafka, config.workers
    heartbeat, session = kafka.heartbeat_interval_seconds, kafka.session_timeout_seconds
    if heartbeat >= session:
        yield (
            f"kafka.heartbeat_interval_seconds ({heartbeat:g}) must be less than kafka.session_timeout_seconds "
            f"({session:g})"
        )
    revoke, poll = workers.revoke_timeout_seconds, kafka.max_poll_interval_seconds
    if revoke >= poll:
        yield (
            f"workers.revoke_timeout_seconds ({revoke:g}) must be less than kafka.max_poll_interval_seconds "
            f"({poll:g}): otherwise the worker would count as hung while its batch ends"
        )
    least, most = workers.backoff_min_seconds, workers.backoff_max_seconds
    if least > most:
        yield f"workers.backoff_min_seconds ({least:g}) must not be more than workers.backoff_max_seconds ({most:g})"


def _of_memory(config: Config) -> Iterator[str]:
    for name, section in (("workers", config.workers), ("engine", config.engine)):
        soft, hard = size_bytes(section.memory_soft), size_bytes(section.memory_hard)
        if soft is not None and hard is not None and soft > hard:
            yield (
                f"{name}.memory_soft ({section.memory_soft}) must not be more than {name}.memory_hard "
                f"({section.memory_hard})"
            )


def _of_handler(config: Config) -> Iterator[str]:
    count, is_direct = config.sinkers.count, config.storage.kind.is_handled_inside
    if (count > 0 or is_direct) and not config.sinkers.handler:
        why = 'storage.mode is "directly"' if is_direct else f"sinkers.count is {count}"
        yield (
            f"{why}, but sinkers.handler is empty: name the function that gets the messages, as "
            "`package.module:function`"
        )
    if count > 0 and is_direct:
        yield (
            f'storage.mode is "directly" and sinkers.count is {count}, but in this mode the workers call the '
            "handler, so sinkers have no messages: use 0, or another mode"
        )


def _of_storage(config: Config) -> Iterator[str]:
    mode, master = config.storage.mode, config.spark.master
    if config.storage.kind.is_table:
        yield from _of_lake(config)
    elif config.storage.uri:
        yield (
            f'storage.uri is set and storage.mode is "{mode}", but only mode "lake" fills a table: write '
            'mode = "lake", or leave uri out'
        )
    if config.storage.kind.is_file and not master.startswith("local"):
        yield (
            f'storage.mode is "{mode}" and spark.master is "{master}", but executors on other machines cannot write to '
            "a file of this machine: use `local[k]`"
        )


def _of_schemas(config: Config) -> Iterator[str]:
    registry = config.schema_registry
    for name in ("value_format", "key_format"):
        if getattr(config.kafka, name) == "avro" and not registry.url:
            yield f'kafka.{name} is "avro" and schema_registry.url is empty: name the registry that has the schemas'
    if registry.basic_auth_file and registry.token_file:
        yield "schema_registry.basic_auth_file and schema_registry.token_file are both set: leave one out"


def _of_hosts(config: Config) -> Iterator[str]:
    hosts = config.hosts
    if not hosts.url:
        return
    address = urlsplit(hosts.url)
    if address.scheme == "http" and not hosts.allow_plain:
        yield (
            f"hosts.url is {hosts.url}, without TLS, so others could read tokens in transit: set http.tls_certificate "
            "and use https://, or set hosts.allow_plain"
        )
    if address.scheme == "https" and not hosts.ca_file:
        yield (
            "hosts.url is set and hosts.ca_file is not: name the authority of the hosts' certificates; otherwise "
            "kctl would send a token to any server with a certificate"
        )
    if hosts.name == "all":
        yield 'hosts.name is "all", which means every host: choose another name'
    if hosts.group == config.kafka.group:
        yield "hosts.group is kafka.group: masters need a group of their own"
    if address.hostname in ("0.0.0.0", "::"):  # noqa: S104 - refused
        yield f"hosts.url is {hosts.url}, which other hosts cannot reach: name this host or one of its addresses"
    if config.storage.kind.is_file and not hosts.local_storage:
        yield (
            f'hosts.url is set and storage.mode is "{config.storage.mode}", whose file other hosts do not share: use '
            'mode "redis" or "lake", or set hosts.local_storage'
        )


def _of_lake(config: Config) -> Iterator[str]:
    storage, sinkers = config.storage, config.sinkers
    if not storage.uri:
        yield (
            'storage.mode is "lake", but storage.uri is empty: name the folder of the table, as '
            "`file:///srv/lake/orders` or `s3://bucket/orders`"
        )
    elif not _is_folder(unquote(urlsplit(storage.uri).path)):
        yield (
            f"storage.uri is {storage.uri}, which names no folder of its own: write its path from the root on, without "
            "`.`, `..` and control characters"
        )
    yield from _unused_of_lake(config)
    yield from _of_columns(config)
    if sinkers.count > 0 or sinkers.handler:
        given = f"sinkers.count is {sinkers.count}" if sinkers.count else "sinkers.handler is set"
        yield (
            f'storage.mode is "lake" and {given}, but batches become rows of a table, and nothing waits for sinkers: '
            "leave them out, or use another mode"
        )


def uri_hint(uri: str) -> str:
    """Returns advice on a rejected `storage.uri`. Does not quote the URI, because it may contain credentials."""
    scheme, colon, rest = uri.partition("://")
    if scheme in ("s3a", "s3n") and colon:
        return "; write s3:// for Spark's s3a://"
    if scheme == "s3":
        if rest.endswith("/"):
            return "; leave the `/` at its end out" if "/" in rest.rstrip("/") else "; name a folder in the bucket too"
        return "" if "/" in rest else "; name a folder in the bucket too"
    if uri.startswith("/"):
        return "; write file:// before the path"
    if uri.startswith("file:"):
        return "; an absolute path has three slashes: file:///srv/lake/orders"
    return f"; tables cannot be in {scheme}://" if colon else ""


def _is_folder(path: str) -> bool:
    return not ({".", ".."} & set(path.split("/")) or not path.strip("/") or re.search(r"[\x00-\x1f\x7f]", path))


def _unused_of_lake(config: Config) -> Iterator[str]:
    storage = config.storage
    if not storage.uri or storage.uri.startswith("s3://"):
        return
    for name in ("endpoint", "region", "credentials_file"):
        if getattr(storage, name):
            yield (
                f"storage.{name} is set and storage.uri is {storage.uri}, but only a table in an object store has one: "
                f"write uri as s3://BUCKET/PREFIX, or leave {name} out"
            )


def _of_columns(config: Config) -> Iterator[str]:
    columns = config.storage.partition_by
    if twice := [name for at, name in enumerate(columns) if name in columns[:at]]:
        yield f"storage.partition_by names {twice[0]} twice: leave one out"
    unknown = [name for name in columns if name not in KAFKA_COLUMNS]
    if unknown and not config.workers.transform and config.kafka.value_format != "avro":
        yield (
            f"storage.partition_by names {unknown[0]}, but without workers.transform the columns are "
            f"{', '.join(KAFKA_COLUMNS)}"
        )
