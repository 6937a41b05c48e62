"""Who may do what, as the configuration says; checked before anything is started."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from kctl.config import Http
from kctl.errors import ConfigError

__all__ = ["Access", "access_of", "address_of"]

_SHORTEST_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Access:
    """Reads are open on loopback; anything else needs the token."""

    is_loopback: bool = True
    token: str | None = None
    hosts: frozenset[str] = frozenset()
    """Names by which a caller without a token may call us, besides those of loopback (a page of another site could
    make its own name point at us)."""
    certificate: Path | None = None
    key: Path | None = None

    def __repr__(self) -> str:
        return f"Access(is_loopback={self.is_loopback}, token={'set' if self.token else None})"


def access_of(http: Http, folder: Path) -> Access:
    """What `[http]` says; relative paths are relative to `folder`.

    Raises:
        ConfigError: the token or certificate cannot be used, or the address is open to others without them.
    """
    is_loopback = address_of(http.host).is_loopback
    token = _token(folder / http.token_file) if http.token_file else None
    certificate = folder / http.tls_certificate if http.tls_certificate else None
    key = folder / http.tls_key if http.tls_key else None
    if certificate is not None:
        _check_pair(certificate, key)
    elif key is not None:
        raise ConfigError("http.tls_key is set, but http.tls_certificate is not: set both, or neither")
    if not is_loopback and token is None:
        raise ConfigError(
            f"http.host is {http.host}, which is not a loopback address, so others can reach it: set http.token_file "
            "to a file with a token that callers must know"
        )
    if not is_loopback and certificate is None and not http.insecure:
        raise ConfigError(
            f"http.host is {http.host}, which is not a loopback address, so the token could be read on the way: set "
            "http.tls_certificate, or http.insecure = true if something in front has TLS"
        )
    hosts = frozenset(host.lower() for host in http.allowed_hosts)
    return Access(is_loopback, token, hosts, certificate, key)


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """
    Raises:
        ConfigError: it is neither an IP address nor `localhost`.
    """
    try:
        return ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise ConfigError(
            f"http.host is {host!r}, which is no IP address: give one, such as the loopback address 127.0.0.1, or "
            "0.0.0.0 for all of this host"
        ) from None


def _token(path: Path) -> str:
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not plain text"
        raise ConfigError(f"http.token_file {path} cannot be read ({why}): it must hold the token") from None
    if len(token) < _SHORTEST_TOKEN or not token.isprintable() or " " in token:
        raise ConfigError(
            f"http.token_file {path} must hold one word of at least {_SHORTEST_TOKEN} characters; "
            "`openssl rand -hex 32` makes one"
        )
    return token


def _check_pair(certificate: Path, key: Path | None) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"http.tls_certificate {certificate} cannot be used with its key ({error.strerror or error}): both must be "
            "PEM, the key without a passphrase"
        ) from None
