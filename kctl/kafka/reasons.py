"""What a client's exception means to an operator: one sentence with the broker's own name of the error.

kafka-python's classes carry that name in `message`, such as `NOT_ENOUGH_REPLICAS`.
"""

from __future__ import annotations

from kafka import errors
from kafka.errors import KafkaError

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

__all__ = ["code_failure", "failure", "name_of", "name_of_code"]

_KINDS: tuple[tuple[tuple[type[Exception], ...], type[KctlError], str], ...] = (
    ((errors.AuthorizationError,), NotAuthorised, "ask for the right, or as somebody else"),
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
_RENAMED = {
    "MESSAGE_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE",
    "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
    "INVALID_TOPIC": "INVALID_TOPIC_EXCEPTION",
}
"""Where kafka-python still has an older name than the broker's log and Kafka's documentation."""


def name_of(error: BaseException | type[BaseException]) -> str:
    """The broker's name of an error, `UNKNOWN_TOPIC_OR_PARTITION`; of an exception without one, its class."""
    said = getattr(error, "message", None)
    name = _RENAMED.get(str(said), said)
    if name and name != errors.UnknownError.message:
        return str(name)
    number = getattr(error, "errno", None)
    if isinstance(error, KafkaError) and number is not None:
        return f"error {number}"
    return (error if isinstance(error, type) else type(error)).__name__


def name_of_code(code: int) -> str | None:
    """The name of an error code as a broker sends it; None for 0."""
    return None if code == 0 else name_of(errors.for_code(code)())


def failure(error: BaseException, what: str) -> KctlError:
    """`what` could not be done because of `error`: the sentence and the exit code.

    An error that is ours already comes back as it is.
    """
    if isinstance(error, KctlError):
        return error
    for kinds, ours, advice in _KINDS:
        if isinstance(error, kinds):
            return ours(f"{what}: {_told(error)}; {advice}")
    return BrokerRefused(f"{what}: {_told(error)}")


def code_failure(code: int, what: str, said: str | None = None) -> KctlError:
    """The same for an error code of a response; `said` is what the broker wrote beside it."""
    kind = errors.for_code(code)
    return failure(kind(said) if said else kind(), what)


def _told(error: BaseException) -> str:
    said = " ".join(str(argument) for argument in error.args if isinstance(argument, str | OSError)).strip()
    name = name_of(error)
    said = said.removeprefix(f"{name}: ").removeprefix(f"{type(error).__name__}: ")
    return f"{name} ({said.rstrip('.')})" if said and said != name else name
