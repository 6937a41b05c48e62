"""Describes exceptions of kafka-python, recognized by class name, in plain words for an operator."""

import os
import re
from typing import Final

_RENAMED: Final = {
    "MESSAGE_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE",
    "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
    "INVALID_TOPIC": "INVALID_TOPIC_EXCEPTION",
}
"""kafka-python's older names -> the names in the broker's log and Kafka's documentation."""
_UNKNOWN: Final = "UNKNOWN"
_CLASS_NAME: Final = re.compile(r"(?:\[Error -?\d+\] )?\b[A-Z]\w*(?:Error|Exception|Cancelled|Metadata)(?:: |$)")
_ERRNO: Final = re.compile(r"\[?(?:Errno )?\b(\d+)\]? (?:E[A-Z]{3,}|[A-Z][\w' ]+)")
_NOT_CONNECTED: Final = {
    "coordinator": "no connection to the group's coordinator",
    "controller": "no connection to the controller",
}
_UNREACHABLE: Final = ("KafkaConnectionError", "NodeNotReadyError", "OSError", "MetadataEmptyBrokerList", "Cancelled")
_TIMEOUTS: Final = ("KafkaTimeoutError", "RequestTimedOutError", "TimeoutError")
_ADVICE: Final = (
    (("AuthorizationError",), "grant this right to its user, see SECURITY.md"),
    (
        ("SaslAuthenticationFailedError", "UnsupportedSaslMechanismError", "IllegalSaslStateError"),
        "check kafka.sasl_mechanism, kafka.sasl_username and its password or token",
    ),
    (("UnknownTopicOrPartitionError",), "`kctl kafka topics` lists the topics that exist"),
)


def describe(error: BaseException, what: str, servers: str) -> str:
    """Returns a sentence: `what` (such as `offsets cannot be committed`), bootstrap `servers`, reason and advice."""
    classes = {each.__name__ for each in type(error).__mro__}
    if not classes.isdisjoint(_TIMEOUTS):
        where = f"the Kafka brokers at {servers}"
        return f"{what}: {where} did not answer in time; check that they run and are not overloaded"
    if not classes.isdisjoint(_UNREACHABLE):
        return f"{what}: the Kafka brokers at {servers} cannot be reached ({reason(error)}); check that they run"
    advice = next((text for kinds, text in _ADVICE if not classes.isdisjoint(kinds)), None)
    if name_of(error) is None:
        return f"{what}: {reason(error)}"
    return f"{what}: the Kafka brokers at {servers} answered {reason(error)}" + (f"; {advice}" if advice else "")


def is_of_kafka(error: BaseException) -> bool:
    return any(each.__name__ == "KafkaError" for each in type(error).__mro__)


def reason(error: BaseException) -> str:
    """Returns the reason as part of a sentence, such as `connection refused` or `NOT_COORDINATOR`."""
    kind = type(error).__name__
    if kind == "KafkaTimeoutError":
        return "no answer in time"
    if kind == "NodeNotReadyError":
        node = error.args[0] if error.args else None
        is_number = isinstance(node, int)
        return f"no connection to broker {node}" if is_number else _NOT_CONNECTED.get(str(node), "no connection")
    if isinstance(error, OSError) and error.errno:
        return _strerror(error.errno) or str(error)
    detail = without_class_names(" ".join(str(each) for each in error.args if isinstance(each, str | BaseException)))
    name = name_of(error)
    if name is None:
        return detail or ("the connection was closed" if kind == "KafkaConnectionError" else _in_words(kind))
    detail = detail.removeprefix(f"{name}: ")
    return f"{name} ({detail})" if detail and detail != name else name


def name_of(error: BaseException | type[BaseException]) -> str | None:
    """Returns the broker's name for an error, such as `UNKNOWN_TOPIC_OR_PARTITION`, or None if no broker sent it."""
    is_os_error = isinstance(error, OSError) or (isinstance(error, type) and issubclass(error, OSError))
    number = None if is_os_error else getattr(error, "errno", None)
    if number is None:
        return None
    if number == -1:
        return "UNKNOWN_SERVER_ERROR"
    name = str(getattr(error, "message", None) or _UNKNOWN)
    return f"error {number}" if name == _UNKNOWN else _RENAMED.get(name, name)


def without_class_names(text: str) -> str:
    """Removes class names, and turns error numbers into words: `unable to connect: connection refused`."""
    plain = _CLASS_NAME.sub("", text)
    return _ERRNO.sub(lambda found: _strerror(int(found[1])) or found[0], plain).strip().rstrip(".:")


def _strerror(number: int) -> str | None:
    text = os.strerror(number)
    return None if text.startswith("Unknown error") else text[0].lower() + text[1:]


def _in_words(kind: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", kind.removeprefix("Kafka")).lower()
