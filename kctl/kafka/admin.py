"""Creates, alters and deletes topics, and deletes groups. Error messages keep the broker's own words."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
)

from kctl.errors import GroupActive, UsageError
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import TOPIC_RESOURCE, settings_of_topic, topics_of
from kctl.kafka.client.reasons import COORDINATOR_ERRORS, code_failure, or_raise

_BROKERS_DEFAULT = -1
_SET, _DELETE = 0, 1
_NON_EMPTY_GROUP = 68


class NewTopic(NamedTuple):
    """A created topic. A field that an old broker does not report is None."""

    topic: str
    partitions: int | None
    replicas: int | None
    topic_id: str | None


def create_topic(
    connection: ClusterConnection,
    name: str,
    partitions: int | None,
    replicas: int | None,
    settings: Mapping[str, str],
    *,
    is_dry_run: bool = False,
) -> NewTopic:
    """Creates a topic and waits until its partitions have leaders. If `partitions` or `replicas` is None, the brokers
    use their default. Raises KctlError."""
    topic = CreateTopicsRequest.CreatableTopic
    request = CreateTopicsRequest(
        topics=[
            topic(
                name=name,
                num_partitions=_BROKERS_DEFAULT if partitions is None else partitions,
                replication_factor=_BROKERS_DEFAULT if replicas is None else replicas,
                assignments=[],
                configs=[topic.CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
            )
        ],
        timeout_ms=connection.deadline.left_milliseconds,
        validate_only=is_dry_run,
    )
    [result] = connection.ask(request, connection.controller_id).topics
    _raise(result, f"topic {name}")
    if not is_dry_run:
        _wait_for_leaders(connection, name, max(result.num_partitions, partitions or 1))
    return NewTopic(
        name,
        result.num_partitions if result.num_partitions > 0 else partitions,
        result.replication_factor if result.replication_factor > 0 else replicas,
        None if is_dry_run or not result.topic_id or not result.topic_id.int else str(result.topic_id),
    )


def delete_topic(connection: ClusterConnection, name: str) -> None:
    """Deletes a topic, and waits until the brokers no longer know it. Raises KctlError."""
    state = DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=None)
    request = DeleteTopicsRequest(topics=[state], topic_names=[name], timeout_ms=connection.deadline.left_milliseconds)
    [result] = connection.ask(request, connection.controller_id).responses
    _raise(result, f"topic {name}")
    while connection.deadline.may_wait and not topics_of(connection.metadata([name]))[name].error_code:
        connection.pause()


def add_partitions(connection: ClusterConnection, name: str, total: int, *, is_dry_run: bool) -> None:
    """Increases a topic's partitions to `total`. After that, keys may map to other partitions. Raises KctlError."""
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=total, assignments=None)
    request = CreatePartitionsRequest(
        topics=[topic], timeout_ms=connection.deadline.left_milliseconds, validate_only=is_dry_run
    )
    [result] = connection.ask(request, connection.controller_id).results
    _raise(result, f"topic {name}")
    if not is_dry_run:
        _wait_for_leaders(connection, name, total)


def alter_settings(
    connection: ClusterConnection, name: str, settings: Mapping[str, str | None], *, is_dry_run: bool
) -> None:
    """Changes settings of a topic. The value None restores a default. Raises KctlError."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        resource.AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
        for key, value in settings.items()
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=configs)],
        validate_only=is_dry_run,
    )
    [result] = connection.ask(request, connection.controller_id).responses
    _raise(result, f"the configuration of topic {name}")


def values_of(connection: ClusterConnection, name: str, keys: list[str]) -> dict[str, str | None]:
    """Returns a topic's values of the settings `keys`, or their defaults. Raises UsageError, KctlError."""
    known = {each.name: each.value for each in settings_of_topic(connection, name)}
    for key in keys:
        if key not in known:
            import difflib

            near = difflib.get_close_matches(key, known, n=1)
            hint = f"; the nearest is `{near[0]}`" if near else ""
            raise UsageError(f"a topic has no setting `{key}`{hint}")
    return {key: known[key] for key in keys}


def delete_group(connection: ClusterConnection, name: str) -> None:
    """Deletes an empty group and its committed offsets. Raises GroupActive, GroupMissing, KctlError."""
    while True:
        node = or_raise(connection.coordinators([name])[name])
        [result] = connection.ask(DeleteGroupsRequest(groups_names=[name]), node).results
        if result.error_code not in COORDINATOR_ERRORS or not connection.deadline.may_wait:
            break
        connection.pause()
    if result.error_code == _NON_EMPTY_GROUP:
        raise GroupActive(f"group {name} has live members (NON_EMPTY_GROUP): stop them first")
    if result.error_code:
        raise code_failure(result.error_code, f"group {name}")


def _wait_for_leaders(connection: ClusterConnection, name: str, partitions: int) -> None:
    while connection.deadline.may_wait:
        topic = topics_of(connection.metadata([name])).get(name)
        if topic is not None and sum(each.leader is not None for each in topic.partitions) >= partitions:
            return
        connection.pause()


def _raise(result: Any, what: str) -> None:
    if result.error_code:
        raise code_failure(result.error_code, what, result.error_message)
