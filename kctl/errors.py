"""The control plane's errors. Each class has a code, an exit code and an HTTP status. An error's message is one
sentence for an operator: what happened, to what, and what to do.

Agents have their own errors, in `kctl_agent.errors`. docs/errors.md lists all errors.
"""

from typing import ClassVar


class KctlError(Exception):
    """An error without a code of its own. The message describes the error."""

    code: ClassVar[str] = "failed"
    retriable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init_subclass__(
        cls, code: str, *, retriable: bool | None = None, exit_code: int | None = None, http_status: int | None = None
    ) -> None:
        """Stores the given values on the subclass, which inherits the others."""
        declared = {"code": code, "retriable": retriable, "exit_code": exit_code, "http_status": http_status}
        for name, value in declared.items():
            if value is not None:
                setattr(cls, name, value)


class CommandRejected(KctlError, code="command_rejected", http_status=502):
    """The master answered with an error, which kctl shows."""


class BadAnswer(KctlError, code="bad_answer", http_status=502):
    """A field of the master's answer is missing or wrong. Check that `kctl` and the master are of the same release."""


class OperationRefused(KctlError, code="operation_refused", http_status=409):
    """The operation is impossible, or conflicts with another operation in progress. Nothing changed."""


class NoSuchOperation(OperationRefused, code="no_such_operation", exit_code=2, http_status=404):
    """None of the last 500 operations has this id. See `kctl operations`."""


class OperationFailed(KctlError, code="operation_failed", http_status=409):
    """The operation began and failed. The message reports how far it came."""


class OperationUnknown(KctlError, code="operation_unknown", exit_code=3, http_status=504):
    """The operation may have happened, or may still happen. The message names the process or host that did not report
    the outcome. See `kctl status`."""


class AgentRefused(KctlError, code="agent_refused", retriable=True, http_status=502):
    """A worker rejected the operation, or cannot be reached. Nothing changed."""


class StopTimeout(KctlError, code="stop_timeout", retriable=True, http_status=504):
    """The master still runs after `--timeout`: wait, or read its log. Or a process of the fleet survived SIGKILL
    (docs/troubleshooting.md)."""


class UsageError(KctlError, code="usage", exit_code=2, http_status=400):
    """The command line is wrong. See `--help` of the command."""


class ClusterMissing(KctlError, code="cluster_missing", exit_code=2, http_status=404):
    """kctl does not watch a cluster of this name. The message lists the clusters that it watches."""


class ConfigError(KctlError, code="bad_config", exit_code=2):
    """A file, `KCTL_*` variable or flag cannot be used. The message has the reason. As root, kctl also rejects a file
    that another user owns or can write to (use `sudo -u USER kctl …`)."""


class IncompleteAnswer(KctlError, code="incomplete", retriable=True, exit_code=3, http_status=503):
    """Some workers or hosts did not answer, or brokers' offsets are stale or unknown. The message has the reasons."""


class ThresholdExceeded(KctlError, code="threshold_exceeded", exit_code=4):
    """A value in the answer is above `--fail-above`."""


class NotWell(KctlError, code="not_well"):
    """The verdict (docs/status.md) is `unknown`, or at least as bad as the level of `kctl status --fail-on`."""


class NoMaster(KctlError, code="no_master", retriable=True, exit_code=5, http_status=503):
    """kctl cannot reach a master or exporter. For a fleet on this host, the code is more precise: `no_socket_file`,
    `nobody_listening` or `socket_not_permitted`."""


class NoSocketFile(NoMaster, code="no_socket_file"):
    """The fleet was never started, or has been stopped. If you mean another fleet, use `-c`."""


class NobodyListening(NoMaster, code="nobody_listening"):
    """The master has ended, but its socket file still exists. Start the fleet again."""


class SocketNotPermitted(NoMaster, code="socket_not_permitted", retriable=False, http_status=403):
    """The fleet belongs to another user. Run kctl as that user."""


class StartError(KctlError, code="start_failed", http_status=503):
    """A fleet or the demo cannot start. The message has the reason. No process was left running."""


class BrokerUnreachable(StartError, code="broker_unreachable", retriable=True, exit_code=10):
    """No bootstrap server answered, or a broker did not answer in time."""


class TopicMissing(StartError, code="topic_missing", exit_code=11):
    """A topic of `kafka.topics` or of a `kctl kafka` command does not exist. Create it, or correct the name."""


class JavaMissing(StartError, code="java_missing", exit_code=12):
    """Java is missing or too old for Spark. Install Java 17."""


class PortTaken(StartError, code="port_taken", exit_code=13):
    """The port of `http.port` or `kctl demo --port` cannot be used. Choose another."""


class RunDirUnusable(StartError, code="run_dir_unusable", exit_code=14):
    """kctl cannot write to a folder of the fleet, or another user owns it. Or the folder, your code or the jars are
    world-writable. `fleet.run_dir` must have mode 700."""


class AlreadyRunning(StartError, code="already_running", exit_code=15, http_status=409):
    """A master, or a process of a former master, still uses this `run_dir` or `data_dir`. The message shows its pid."""


class JarsMissing(StartError, code="jars_missing", retriable=True, exit_code=16):
    """A jar is missing or wrong. Run `kctl jars fetch` (for a table in an object store, also `kctl jars fetch s3`)."""


class BrokerRefused(KctlError, code="broker_refused", http_status=502):
    """A broker answered with an error that has no code of its own in kctl. The message shows the error."""


class AuthenticationFailed(BrokerRefused, code="authentication_failed", exit_code=17):
    """The broker rejects the name, password, token, mechanism or certificate."""


class NotAuthorised(BrokerRefused, code="not_authorised", exit_code=18, http_status=403):
    """The broker knows the user but does not permit the request. The message names the topic, group or cluster."""


class GroupMissing(BrokerRefused, code="group_missing", exit_code=19, http_status=404):
    """The group does not exist, or its new coordinator does not know it yet. See `kctl kafka groups`."""


class PartitionMissing(BrokerRefused, code="partition_missing", exit_code=20, http_status=404):
    """The topic does not have this partition."""


class MessageTooLarge(BrokerRefused, code="message_too_large", exit_code=21, http_status=413):
    """A message is larger than `max.message.bytes` of its topic."""


class NotEnoughReplicas(BrokerRefused, code="not_enough_replicas", retriable=True, exit_code=22, http_status=503):
    """Fewer replicas are in sync than `min.insync.replicas`. See `kctl kafka topic`."""


class WrongProtocol(BrokerRefused, code="wrong_protocol", exit_code=23):
    """Only one side uses TLS or SASL, or the server is not Kafka."""


class GroupActive(BrokerRefused, code="group_active", exit_code=24, http_status=409):
    """The group has live members. Stop them first."""


class CheckpointUnreadable(KctlError, code="checkpoint_unreadable", retriable=True, exit_code=25, http_status=502):
    """A Spark checkpoint (docs/spark-jobs.md) is missing or not readable, or its storage does not answer."""


class CheckpointUnusable(KctlError, code="checkpoint_unusable", exit_code=26, http_status=409):
    """kctl cannot use the checkpoint's offsets, for example because its Spark job still runs. No offset changed."""
