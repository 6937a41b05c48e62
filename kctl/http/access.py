"""Access rights and bearer tokens of the HTTP server."""

import hashlib
import hmac
import ipaddress
import re
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kctl.config.sections import HttpSection
from kctl.errors import ConfigError
from kctl_agent.secrecy import check_private, read_private

AT_A_TIME: Final = 2  # the most tokens per file: during a rotation the old and the new token are valid

_SHORTEST: Final = 16
_LINE: Final = re.compile(r"(?:(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,63})(?::[ \t]*|[ \t]+=[ \t]+))?(?P<secret>[!-~]+)")
"""`=` needs blanks around it, because a base64 token may end with one."""


@dataclass(frozen=True, slots=True)
class Token:
    """Permits reading, except of messages, logs and settings. If `may_act` is true, permits all requests."""

    secret: str = field(repr=False)
    name: str = ""  # the token's name in the file, for the audit log
    may_act: bool = False


def read_tokens(path: Path, setting: str, *, may_act: bool) -> tuple[Token, ...]:
    """Reads one token per line: `TOKEN`, `NAME: TOKEN` or `NAME = TOKEN`. Lines that begin with `#` are comments. Error
    messages name `setting` and never quote the file. Raises ConfigError."""
    try:
        lines = read_private(path).splitlines()
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not plain text"
        raise ConfigError(f"{setting} {path} cannot be read ({why}): it must contain the token") from None
    tokens = tuple(
        _token(line.strip(), f"{setting} {path}, line {number},", may_act)
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    )
    if not tokens:
        raise ConfigError(f"{setting} {path} contains no token; `(umask 077; openssl rand -hex 32 > FILE)` makes one")
    if len(tokens) > AT_A_TIME:
        raise ConfigError(
            f"{setting} {path} contains {len(tokens)} tokens: at most {AT_A_TIME} are valid at a time, the old and "
            "the new token during a rotation"
        )
    return tokens


def shown_token(given: str, tokens: Iterable[Token]) -> Token | None:
    """Returns the token whose secret is `given`, or None if `given` is wrong."""
    found = None  # compares all tokens in constant time, so that timing reveals nothing
    for token in tokens:
        if hmac.compare_digest(given.encode(), token.secret.encode()):
            found = token
    return found


def check_distinct(tokens: Sequence[Token]) -> None:
    """Checks that no token or name is repeated. Raises ConfigError."""
    if len({token.secret for token in tokens}) < len(tokens):
        raise ConfigError(
            "the same token appears twice in http.token_file and http.read_token_file: use different tokens"
        )
    names = [token.name for token in tokens if token.name]
    if len(set(names)) < len(names):
        raise ConfigError("two tokens of http.token_file and http.read_token_file have the same name: rename one")


def _token(line: str, where: str, may_act: bool) -> Token:
    match = _LINE.fullmatch(line)
    if match is None or len(match["secret"]) < _SHORTEST:
        raise ConfigError(
            f"{where} must contain one word of at least {_SHORTEST} characters, or a name, a colon and that word; "
            "`(umask 077; openssl rand -hex 32 > FILE)` makes one"
        )
    return Token(match["secret"], match["name"] or "", may_act)


@dataclass(frozen=True, slots=True)
class AccessRights:
    """The rights of callers. Changes, messages, logs and settings always need a token. If `is_open` is false, all
    requests need a token."""

    is_loopback: bool = True
    others_may_read: bool = True
    """Whether all users of this machine may read on loopback without a token."""
    tokens: tuple[Token, ...] = ()
    hosts: frozenset[str] = frozenset()
    """Host names besides loopback's that callers without a token may use. Others are rejected, because another site
    could point its own name at us."""
    certificate: Path | None = None
    key: Path | None = None
    fingerprint: str = ""  # certificate and key file, to detect a renewal

    @property
    def is_open(self) -> bool:
        """Whether the fleet's user and root may read without a token. For other users, see `others_may_read`."""
        return self.is_loopback and all(token.may_act for token in self.tokens)

    @property
    def may_act(self) -> bool:
        return any(token.may_act for token in self.tokens)


def access_of(http: HttpSection, folder: Path, *, others_may_read: bool = False) -> AccessRights:
    """Returns the access rights of `http`, whose paths are relative to `folder`. Unless `others_may_read` is true,
    other users of this machine can read only probes and metrics without a token, because other answers can quote
    messages. An address that is not loopback needs a token, and TLS or `http.insecure`. Raises ConfigError."""
    is_loopback = address_of(http.host).is_loopback
    files = {"http.token_file": http.token_file, "http.read_token_file": http.read_token_file}
    tokens = tuple(
        token
        for setting, file in files.items()
        if file
        for token in read_tokens(folder / file, setting, may_act=setting == "http.token_file")
    )
    check_distinct(tokens)
    certificate = folder / http.tls_certificate if http.tls_certificate else None
    key = folder / http.tls_key if http.tls_key else None
    if certificate is not None:
        tls_context(certificate, key)
    elif key is not None:
        raise ConfigError("http.tls_key is set, but http.tls_certificate is not: set both, or neither")
    if not is_loopback and not tokens:
        raise ConfigError(
            f"http.host is {http.host}, which is not a loopback address, so others can reach it: set http.token_file "
            "to a file with a token that callers must send, or http.read_token_file if they may only read"
        )
    if not is_loopback and certificate is None and not http.insecure:
        raise ConfigError(
            f"http.host is {http.host}, which is not a loopback address, so others could read the token in transit: "
            "set http.tls_certificate, or http.insecure = true if a proxy in front has TLS"
        )
    hosts = frozenset(host.lower() for host in http.allowed_hosts)
    return AccessRights(is_loopback, others_may_read, tokens, hosts, certificate, key, _fingerprint(certificate, key))


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Parses an IP address or `localhost`. Raises ConfigError."""
    try:
        return ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise ConfigError(
            f"http.host is {host!r}, which is no IP address: give one, such as the loopback address 127.0.0.1, or "
            "0.0.0.0 for all of this host"
        ) from None


def _fingerprint(*paths: Path | None) -> str:
    content = b"".join(path.read_bytes() for path in paths if path is not None)
    return hashlib.sha256(content).hexdigest() if content else ""


def tls_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        check_private(key or certificate)
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"http.tls_certificate {certificate} cannot be used with its key ({error.strerror or error}): both must be "
            "PEM, the key without a passphrase"
        ) from None
    return context
