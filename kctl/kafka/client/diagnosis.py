"""Diagnoses a failed connection to a bootstrap server by trying other protocols. If a Kafka listener receives the wrong
protocol, it just closes the connection."""

import socket
import ssl
from struct import unpack

from kafka import errors
from kafka.protocol.metadata import ApiVersionsRequest

from kctl.errors import AuthenticationFailed, BrokerUnreachable, KctlError, WrongProtocol
from kctl.kafka.client.access import ClusterAccess
from kctl.kafka.client.reasons import failure
from kctl_agent.kafka.errors import name_of, without_class_names

_CORRELATION_ID = 7
_UNREACHABLE = ("unable to connect", "ECONN", "EHOST", "ENET", "DNS", "timed out", "ETIMEDOUT", "110 ")


def diagnose(problem: BaseException, access: ClusterAccess, seconds: float) -> KctlError:
    """Explains why a connection failed with `problem`. May try new connections, each with a time-out of `seconds`."""
    text = str(problem)
    at = access.named
    if isinstance(problem, errors.IllegalSaslStateError):
        return WrongProtocol(
            f"the broker at {at} does not take SASL on this port ({name_of(problem)}): set security_protocol to "
            f"{'SSL' if access.security.is_encrypted else 'PLAINTEXT'}, or use its SASL port"
        )
    if isinstance(problem, errors.SaslAuthenticationFailedError | errors.UnsupportedSaslMechanismError):
        return failure(problem, f"the broker at {at} does not let {access.security.username or 'this token'} in")
    if isinstance(problem, KctlError) and not isinstance(problem, BrokerUnreachable):
        return problem
    if isinstance(problem, errors.RequestTimedOutError):
        return BrokerUnreachable(
            f"no Kafka broker answers at {at} ({_reason(text)}): something accepts connections there and does not "
            "answer; is the broker frozen or overloaded?"
        )
    if any(sign in text for sign in _UNREACHABLE):
        return BrokerUnreachable(
            f"no Kafka broker answers at {at} ({_reason(text)}): start it, or correct {access.setting}"
        )
    if "certificate" in text.lower() or "CERTIFICATE" in text:
        return AuthenticationFailed(
            f"TLS with {at} failed ({_reason(text)}): check tls_ca_file, the host name in the broker's certificate, "
            "and our own certificate"
        )
    return _by_asking(problem, access, seconds)


def _by_asking(problem: BaseException, access: ClusterAccess, seconds: float) -> KctlError:
    at = access.named
    sasl = "SASL_" if access.security.is_authenticated else ""
    is_tls = any(_speaks_tls(server, seconds) for server in access.servers)
    if access.security.is_encrypted and not is_tls:
        if any(_speaks_kafka(server, seconds) for server in access.servers):
            return WrongProtocol(
                f"the broker at {at} speaks plain, not TLS: set security_protocol to {sasl or 'PLAINTEXT'}"
                f"{'PLAINTEXT' if sasl else ''}, or use its TLS port"
            )
        return WrongProtocol(f"what listens at {at} speaks neither TLS nor Kafka: is the port right?")
    if is_tls and not access.security.is_encrypted:
        return WrongProtocol(
            f"the broker at {at} speaks TLS, and was spoken to in plain: set security_protocol to {sasl}SSL, or use "
            "its plain port"
        )
    if not is_tls and not any(_speaks_kafka(server, seconds) for server in access.servers):
        if isinstance(problem, KctlError | errors.KafkaTimeoutError):
            return BrokerUnreachable(f"no Kafka broker answers at {at}: something listens, but does not answer in time")
        return WrongProtocol(f"what listens at {at} is no Kafka broker ({_reason(str(problem))}): is the port right?")
    if not access.security.is_authenticated:
        return WrongProtocol(
            f"the broker at {at} closed the connection when it was asked ({_reason(str(problem))}): it seems to demand "
            f"SASL, so set security_protocol to SASL_{access.security.protocol} in a context"
        )
    return failure(problem, f"the broker at {at}")


def _speaks_tls(server: str, seconds: float) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # sends and trusts nothing: does it answer a handshake?
    try:
        with socket.create_connection(_address(server), seconds) as plain, context.wrap_socket(plain) as encrypted:
            return encrypted.version() is not None
    except ssl.SSLError as error:
        return "ALERT" in str(error.reason or "").upper()  # the server wants our certificate, so it speaks TLS
    except OSError:
        return False


def _speaks_kafka(server: str, seconds: float) -> bool:
    request = ApiVersionsRequest(version=0)
    request.with_header(correlation_id=_CORRELATION_ID, client_id="kctl")
    try:
        with socket.create_connection(_address(server), seconds) as plain:
            plain.sendall(request.encode(header=True, framed=True))
            answer = plain.recv(8, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(answer) == 8 and bool(unpack(">ii", answer)[1] == _CORRELATION_ID)


def _address(server: str) -> tuple[str, int]:
    host, _, port = server.rpartition(":")
    return host.strip("[]"), int(port)


def _reason(text: str) -> str:
    plain = without_class_names(text.rpartition("KafkaConnectionError: ")[2])
    return plain.removeprefix("unable to connect: ") or "no reason given"
