"""Secrets of a catalog in what pyiceberg, SQLAlchemy and HTTP say of it: hidden before a log or an answer has them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote, unquote

from kctl_agent.secrecy import SECRET_NAMES

__all__ = ["without_secrets"]

HIDDEN = "***"
SHOWN = frozenset({"type", "name", "uri"})
PLAIN = frozenset({"true", "false"})
LEAST = 4
"""So long is what is hidden at least, unless its name declares it secret: shorter parts are in many words."""


def without_secrets(text: str, properties: Mapping[str, str]) -> str:
    """Without what these properties have configured but type, name, and a URI without its password; as it is, escaped
    for a URL or by `repr`, and in the parts that a URL is cut into where a password is not escaped."""
    secrets = {each for value in _values(properties) for each in _forms(value)}
    longest_first = sorted(secrets, key=len, reverse=True)
    # pyiceberg names what it takes for a truth value in small letters.
    return re.sub("|".join(map(re.escape, longest_first)), HIDDEN, text, flags=re.IGNORECASE) if secrets else text


def _values(properties: Mapping[str, str]) -> Iterator[str]:
    for name, value in properties.items():
        is_secret = re.search(SECRET_NAMES, name) is not None
        if name not in SHOWN and (is_secret or (len(value) >= LEAST and value not in PLAIN)):
            yield value
    place = properties.get("uri", "")
    yield place.partition("://")[2].rpartition("@")[0].partition(":")[2] or place.rpartition("@")[0].partition(":")[2]
    for pair in place.partition("?")[2].split("&"):
        name, _, value = pair.partition("=")
        if re.search(SECRET_NAMES, name):
            yield value


def _forms(value: str) -> Iterator[str]:
    parts = [part for part in re.split(r"[/@?#:\s]", value) if len(part) >= LEAST]
    for each in (value, *parts):
        yield from filter(None, (each, quote(each), quote(each, safe=""), unquote(each), repr(each)[1:-1]))
