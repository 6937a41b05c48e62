"""The tree of the control plane's errors: each class has a code, an exit code and an HTTP status. A message is one
sentence for an operator: what happened, to what, and what to do.

Agents have their own tree, `kctl_agent.errors`; docs/errors.md lists both.
"""

from __future__ import annotations

from typing import ClassVar


class KctlError(Exception):
    """An error without a code of its own; the sentence describes it.

    `code` is for programs, `exit_code` for shells, `http_status` for the HTTP API.
    """

    code: ClassVar[str] = "failed"
    retriable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500


class CommandRejected(KctlError):
    """The master answered with an error, whose sentence is shown."""

    code = "command_rejected"
    http_status = 502


class BadAnswer(KctlError):
    """The master's answer does not fit the command; the sentence names the field. Use the `kctl` of the master's
    release."""

    code = "bad_answer"
    http_status = 502


class OperationRefused(KctlError):
    """The operation is impossible or conflicts with one in progress, which the sentence names; nothing changed."""

    code = "operation_refused"
    http_status = 409


class NoSuchOperation(OperationRefused):
    """None of the last 500 operations has this id. See `kctl operations`."""

    code = "no_such_operation"
    exit_code = 2
    http_status = 404


class OperationFailed(KctlError):
    """The operation began and failed; the sentence reports how far it came."""

    code = "operation_failed"
    http_status = 409


class OperationUnknown(KctlError):
    """The operation may still happen, because the process in the sentence does not answer or continues by itself. See
    `kctl status`."""

    code = "operation_unknown"
    exit_code = 3
    http_status = 504


class AgentRefused(KctlError):
    """A worker rejected the operation or is absent; nothing changed."""

    code = "agent_refused"
    retriable = True
    http_status = 502


class StopTimeout(KctlError):
    """After `--timeout` the master is still stopping: wait, or read its log. Or the master has ended, and a process
    survives SIGKILL (docs/troubleshooting.md)."""

    code = "stop_timeout"
    retriable = True
    http_status = 504


class UsageError(KctlError):
    """The command line is wrong. See `--help` of the command."""

    code = "usage"
    exit_code = 2
    http_status = 400


class ClusterMissing(KctlError):
    """No cluster of this name is collected; the sentence lists those that are."""

    code = "cluster_missing"
    exit_code = 2
    http_status = 404


class ConfigError(KctlError):
    """A file, `KCTL_*` variable or flag cannot be used; the sentence has the value and what is allowed. As root also:
    the file belongs to another user (`sudo -u USER kctl …`)."""

    code = "bad_config"
    exit_code = 2


class IncompleteAnswer(KctlError):
    """Some workers did not answer, or the brokers' offsets are stale or unknown; the sentence names each with the
    reason."""

    code = "incomplete"
    retriable = True
    exit_code = 3
    http_status = 503


class ThresholdExceeded(KctlError):
    """The value is above `--fail-above`."""

    code = "threshold_exceeded"
    exit_code = 4


class NotWell(KctlError):
    """The verdict (docs/status.md) is `unknown`, or as bad as `kctl status --fail-on` names."""

    code = "not_well"


class NoMaster(KctlError):
    """No master or exporter can be asked. For a fleet on this host the code is `no_socket_file`, `nobody_listening` or
    `socket_not_permitted`."""

    code = "no_master"
    retriable = True
    exit_code = 5
    http_status = 503


class NoSocketFile(NoMaster):
    """The fleet was never started or has been stopped, or you mean another one (`-c`)."""

    code = "no_socket_file"


class NobodyListening(NoMaster):
    """The owner of the socket is gone. Start the fleet again; it cleans up."""

    code = "nobody_listening"


class SocketNotPermitted(NoMaster):
    """The fleet belongs to another user. Ask as that user."""

    code = "socket_not_permitted"
    retriable = False
    http_status = 403


class StartError(KctlError):
    """A fleet or the demo cannot start for a reason without a code of its own, which the sentence has. Every part that
    was started has ended."""

    code = "start_failed"
    http_status = 503


class BrokerUnreachable(StartError):
    """No bootstrap server answered, or a broker did not answer in time."""

    code = "broker_unreachable"
    retriable = True
    exit_code = 10


class TopicMissing(StartError):
    """A topic of `kafka.topics` or of a `kctl kafka` command does not exist. Create it, or correct the name."""

    code = "topic_missing"
    exit_code = 11


class JavaMissing(StartError):
    """Java is missing or too old for Spark. Install Java 17."""

    code = "java_missing"
    exit_code = 12


class PortTaken(StartError):
    """`http.port` is in use. Choose another, or 0 for any."""

    code = "port_taken"
    exit_code = 13


class RunDirUnusable(StartError):
    """`fleet.run_dir` is not writable, or open to others (`chmod 700`); or all users can write to a folder or to the
    code of the fleet."""

    code = "run_dir_unusable"
    exit_code = 14


class AlreadyRunning(StartError):
    """Another master uses this `run_dir`. See `kctl status`."""

    code = "already_running"
    exit_code = 15
    http_status = 409


class JarsMissing(StartError):
    """A locked jar is missing or wrong. Run `kctl jars fetch`; for a table in an object store also `kctl jars fetch
    s3`."""

    code = "jars_missing"
    retriable = True
    exit_code = 16


class BrokerRefused(KctlError):
    """A broker answered with the error in the sentence, which has no code of its own here."""

    code = "broker_refused"
    http_status = 502


class AuthenticationFailed(BrokerRefused):
    """The broker rejects the name, password, token, mechanism or certificate."""

    code = "authentication_failed"
    exit_code = 17


class NotAuthorised(BrokerRefused):
    """The broker knows the user but does not permit this; the sentence names topic, group or cluster."""

    code = "not_authorised"
    exit_code = 18
    http_status = 403


class GroupMissing(BrokerRefused):
    """The group does not exist (`kctl kafka groups`, `kctl groups`), or its new coordinator does not know it yet."""

    code = "group_missing"
    exit_code = 19
    http_status = 404


class PartitionMissing(BrokerRefused):
    """The topic exists, but not the partition."""

    code = "partition_missing"
    exit_code = 20
    http_status = 404


class MessageTooLarge(BrokerRefused):
    """A message is larger than `max.message.bytes` of its topic."""

    code = "message_too_large"
    exit_code = 21
    http_status = 413


class NotEnoughReplicas(BrokerRefused):
    """Fewer replicas are in sync than `min.insync.replicas`. See `kctl kafka topic`."""

    code = "not_enough_replicas"
    retriable = True
    exit_code = 22
    http_status = 503


class WrongProtocol(BrokerRefused):
    """Only one side uses TLS or SASL, or the server is not Kafka."""

    code = "wrong_protocol"
    exit_code = 23


class GroupActive(BrokerRefused):
    """The group has live members, which the sentence names. Stop them before you change its offsets."""

    code = "group_active"
    exit_code = 24
    http_status = 409


class CheckpointUnreadable(KctlError):
    """A Spark checkpoint (docs/spark-jobs.md) does not exist, is not permitted, or its storage does not answer."""

    code = "checkpoint_unreadable"
    retriable = True
    exit_code = 25
    http_status = 502


class CheckpointUnusable(KctlError):
    """A Spark checkpoint is still moving, is damaged, or would move a group backwards; nothing changed."""

    code = "checkpoint_unusable"
    exit_code = 26
    http_status = 409
