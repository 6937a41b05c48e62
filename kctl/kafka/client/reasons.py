"""Translates a Kafka client's exceptions to errors of `kctl kafka` with exit code and advice."""

from typing import TypeVar

from kafka import errors

from kctl.errors import (
    AuthenticationFailed,
    BrokerRefused,
    BrokerUnreachable,
    GroupMissing,
    KctlError,
    MessageTooLarge,
    NotAuthorised,
    NotEnoughReplicas,
    TopicMissing,
    WrongProtocol,
)
from kctl_agent.kafka.errors import name_of, reason

T = TypeVar("T")
COORDINATOR_ERRORS = frozenset({14, 15, 16})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: ask again."""
_KINDS: tuple[tuple[tuple[type[Exception], ...], type[KctlError], str], ...] = (
    ((errors.AuthorizationError,), NotAuthorised, "ask for this right, or use another account"),
    (
        (errors.SaslAuthenticationFailedError,),
        AuthenticationFailed,
        "check sasl_username, the password or token, and that the user exists on the cluster",
    ),
    ((errors.UnsupportedSaslMechanismError,), AuthenticationFailed, "check sasl_mechanism"),
    ((errors.GroupIdNotFoundError,), GroupMissing, "`kctl kafka groups` lists those there are"),
    (
        (errors.UnknownTopicOrPartitionError, errors.InvalidTopicError),
        TopicMissing,
        "`kctl kafka topics` lists those there are",
    ),
    (
        (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError),
        MessageTooLarge,
        "see max.message.bytes of `kctl kafka topic`",
    ),
    (
        (errors.NotEnoughReplicasError, errors.NotEnoughReplicasAfterAppendError),
        NotEnoughReplicas,
        "see isr of `kctl kafka topic`, and its min.insync.replicas",
    ),
    (
        (errors.KafkaTimeoutError, errors.RequestTimedOutError),
        BrokerUnreachable,
        "give it longer with --timeout, or look at the broker",
    ),
    ((errors.IncompatibleBrokerVersion,), BrokerRefused, "the broker is too old for this question"),
    ((errors.KafkaProtocolError, errors.InvalidReceiveError), WrongProtocol, "is it a Kafka broker at all?"),
    ((errors.KafkaConnectionError, errors.NodeNotReadyError, OSError), BrokerUnreachable, "is the broker running?"),
)


def or_raise(outcome: T | KctlError) -> T:
    if isinstance(outcome, KctlError):
        raise outcome
    return outcome


def name_of_code(code: int) -> str | None:
    return None if code == 0 else name_of(errors.for_code(code)())


def failure(error: BaseException, what: str) -> KctlError:
    """Translates `error` to a KctlError whose message begins with `what`. Returns a KctlError unchanged."""
    if isinstance(error, KctlError):
        return error
    for kinds, ours, advice in _KINDS:
        if isinstance(error, kinds):
            return ours(f"{what}: {reason(error)}; {advice}")
    return BrokerRefused(f"{what}: {reason(error)}")


def code_failure(code: int, what: str, message: str | None = None) -> KctlError:
    kind = errors.for_code(code)
    return failure(kind(message) if message else kind(), what)
