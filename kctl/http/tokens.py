"""Bearer tokens: what a token file holds, and which token a caller shows."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kctl.errors import ConfigError
from kctl_agent.secrecy import read_private

AT_A_TIME: Final = 2
"""Valid tokens of one file: while a token is rotated the old one and the new one are accepted."""

_SHORTEST: Final = 16
_LINE: Final = re.compile(r"(?:(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,63})(?::[ \t]*|[ \t]+=[ \t]+))?(?P<secret>[!-~]+)")
"""A `=` needs blanks around it, because a token in base64 may end with one."""


@dataclass(frozen=True, slots=True)
class Token:
    """One valid token. Each may read; `may_act`: it may also request operations."""

    secret: str = field(repr=False)
    name: str = ""
    """As the file names it, for the audit of operations; empty: it has none."""
    may_act: bool = False


def read_tokens(path: Path, setting: str, *, may_act: bool) -> tuple[Token, ...]:
    """The tokens of a file: one per line as `TOKEN`, `NAME: TOKEN` or `NAME = TOKEN`; blank lines and lines that begin
    with `#` are skipped. `setting` is named in errors, which never quote the file. Raises ConfigError: the file cannot
    be read, or holds no token, too many, or one that cannot be used."""
    try:
        lines = read_private(path).splitlines()
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not plain text"
        raise ConfigError(f"{setting} {path} cannot be read ({why}): it must hold the token") from None
    tokens = tuple(
        _token(line.strip(), f"{setting} {path}, line {number},", may_act)
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    )
    if not tokens:
        raise ConfigError(f"{setting} {path} holds no token; `(umask 077; openssl rand -hex 32 > FILE)` makes one")
    if len(tokens) > AT_A_TIME:
        raise ConfigError(
            f"{setting} {path} holds {len(tokens)} tokens: at most {AT_A_TIME} are valid at a time, the old one and "
            "the new one while it is rotated"
        )
    return tokens


def shown_token(given: str, tokens: Iterable[Token]) -> Token | None:
    """The token that was shown. Each is compared in constant time, and all of them, so that the time it takes shows
    nothing about a token."""
    found = None
    for token in tokens:
        if hmac.compare_digest(given.encode(), token.secret.encode()):
            found = token
    return found


def check_distinct(tokens: Sequence[Token]) -> None:
    """Refuse tokens of which it is not clear which one is meant. Raises ConfigError: a token or a name stands twice, so
    that what it may do, or whose it is, is not certain."""
    if len({token.secret for token in tokens}) < len(tokens):
        raise ConfigError("the same token stands twice in http.token_file and http.read_token_file: use different ones")
    names = [token.name for token in tokens if token.name]
    if len(set(names)) < len(names):
        raise ConfigError("two tokens of http.token_file and http.read_token_file have the same name: rename one")


def _token(line: str, where: str, may_act: bool) -> Token:
    match = _LINE.fullmatch(line)
    if match is None or len(match["secret"]) < _SHORTEST:
        raise ConfigError(
            f"{where} must hold one word of at least {_SHORTEST} characters, or a name, a colon and that word; "
            "`(umask 077; openssl rand -hex 32 > FILE)` makes one"
        )
    return Token(match["secret"], match["name"] or "", may_act)
