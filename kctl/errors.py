"""The tree of the control plane's errors: each class has a code, an exit code and an HTTP status. A message is one
sentence for an operator: what happened, to what, and what to do.

Agents have their own tree, `kctl_agent.errors`; docs/errors.md lists both.
"""

from __future__ import annotations

from typing import ClassVar


class KctlError(Exception):
    """`code` is for programs, `exit_code` for shells, `http_status` for the HTTP API."""

    code: ClassVar[str] = "failed"
    retriable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500


class CommandRejected(KctlError):
    """The master answered with an error; `wire_code` and `wire_retriable` are its own."""

    code = "command_rejected"
    http_status = 502

    def __init__(self, message: str, wire_code: str, wire_retriable: bool = False) -> None:
        super().__init__(message)
        self.wire_code = wire_code
        self.wire_retriable = wire_retriable


class BadAnswer(KctlError):
    """The master's answer does not have the expected form, perhaps because it is another release."""

    code = "bad_answer"
    http_status = 502


class OperationRefused(KctlError):
    """An operation is impossible or conflicts with one in progress; nothing was changed."""

    code = "operation_refused"
    http_status = 409


class NoSuchOperation(OperationRefused):
    """No operation has this id, or it is no longer kept."""

    code = "no_such_operation"
    exit_code = 2
    http_status = 404


class OperationFailed(KctlError):
    """An operation began and failed; the sentence reports how far it came."""

    code = "operation_failed"
    http_status = 409


class OperationUnknown(KctlError):
    """The outcome of an operation is unknown, or it continues by itself: it may still happen."""

    code = "operation_unknown"
    exit_code = 3
    http_status = 504


class AgentRefused(KctlError):
    """A worker rejected an operation or did not answer; nothing was changed."""

    code = "agent_refused"
    retriable = True
    http_status = 502


class StopTimeout(KctlError):
    """A fleet was asked to stop, but its master or one of its processes still runs."""

    code = "stop_timeout"
    retriable = True
    http_status = 504


class UsageError(KctlError):
    """The command line is wrong: something is missing, unknown or contradictory."""

    code = "usage"
    exit_code = 2
    http_status = 400


class ClusterMissing(KctlError):
    """kctl collects the groups of no cluster with that name."""

    code = "cluster_missing"
    exit_code = 2
    http_status = 404


class ConfigError(KctlError):
    """A configuration file, `KCTL_*` variable or flag cannot be used."""

    code = "bad_config"
    exit_code = 2


class IncompleteAnswer(KctlError):
    """Some workers did not answer; the other answers were printed."""

    code = "incomplete"
    retriable = True
    exit_code = 3
    http_status = 503


class ThresholdExceeded(KctlError):
    """The lag is above `--fail-above`."""

    code = "threshold_exceeded"
    exit_code = 4


class NotWell(KctlError):
    """The verdict on the fleet is as bad as `kctl status --fail-on` names, or unknown."""

    code = "not_well"


class NoMaster(KctlError):
    """No master can be asked; the subclasses are the reasons."""

    code = "no_master"
    retriable = True
    exit_code = 5
    http_status = 503


class NoSocketFile(NoMaster):
    """There is no socket: the fleet was never started, has been stopped, or has another run_dir."""

    code = "no_socket_file"


class NobodyListening(NoMaster):
    """The socket file exists but no process accepts connections: its owner died without cleaning up."""

    code = "nobody_listening"


class SocketNotPermitted(NoMaster):
    """The socket belongs to another user."""

    code = "socket_not_permitted"
    retriable = False
    http_status = 403


class StartError(KctlError):
    """A fleet cannot start; each cause has its own exit code, from 10 on."""

    code = "start_failed"
    http_status = 503


class BrokerUnreachable(StartError):
    """None of the bootstrap servers answered."""

    code = "broker_unreachable"
    retriable = True
    exit_code = 10


class TopicMissing(StartError):
    """A configured topic does not exist."""

    code = "topic_missing"
    exit_code = 11


class JavaMissing(StartError):
    """Java is missing, or too old for Spark."""

    code = "java_missing"
    exit_code = 12


class PortTaken(StartError):
    """The configured HTTP port is in use."""

    code = "port_taken"
    exit_code = 13


class RunDirUnusable(StartError):
    """run_dir cannot be written, or is accessible to other users."""

    code = "run_dir_unusable"
    exit_code = 14


class AlreadyRunning(StartError):
    """Another master uses this run_dir."""

    code = "already_running"
    exit_code = 15
    http_status = 409


class JarsMissing(StartError):
    """A locked jar is missing and cannot be fetched, or its sha256 is wrong."""

    code = "jars_missing"
    retriable = True
    exit_code = 16


class BrokerRefused(KctlError):
    """A broker answered with an error; the sentence contains its name. Frequent errors have subclasses."""

    code = "broker_refused"
    http_status = 502


class AuthenticationFailed(BrokerRefused):
    """The broker rejects the name, password, token or SASL mechanism."""

    code = "authentication_failed"
    exit_code = 17


class NotAuthorised(BrokerRefused):
    """The broker knows the user but does not allow this."""

    code = "not_authorised"
    exit_code = 18
    http_status = 403


class GroupMissing(BrokerRefused):
    """The consumer group does not exist."""

    code = "group_missing"
    exit_code = 19
    http_status = 404


class PartitionMissing(BrokerRefused):
    """The topic exists, but not the partition."""

    code = "partition_missing"
    exit_code = 20
    http_status = 404


class MessageTooLarge(BrokerRefused):
    """A message is larger than the topic accepts."""

    code = "message_too_large"
    exit_code = 21
    http_status = 413


class NotEnoughReplicas(BrokerRefused):
    """Fewer replicas are in sync than the topic requires for `acks=all`."""

    code = "not_enough_replicas"
    retriable = True
    exit_code = 22
    http_status = 503


class WrongProtocol(BrokerRefused):
    """The server answers, but not as configured: TLS instead of plain text, the reverse, SASL, or not Kafka at all."""

    code = "wrong_protocol"
    exit_code = 23


class GroupActive(BrokerRefused):
    """The group has live members, so only they may commit its offsets."""

    code = "group_active"
    exit_code = 24
    http_status = 409


class CheckpointUnreadable(KctlError):
    """A Spark checkpoint cannot be read: it is missing, not permitted, or its storage does not answer."""

    code = "checkpoint_unreadable"
    retriable = True
    exit_code = 25
    http_status = 502


class CheckpointUnusable(KctlError):
    """Offsets of a Spark checkpoint cannot be used: it is still changing, damaged, or would move a group backwards."""

    code = "checkpoint_unusable"
    exit_code = 26
    http_status = 409
