from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.config.sections import HttpSection
from kctl.errors import ConfigError
from kctl.http.access import AccessRights, Token, access_of, read_tokens, shown_token
from tests.fleet_snapshot import TOKEN, TOKENS

OLD, NEW, READ = "an-old-token-0123456789", "a-new-token-0123456789", "a-read-token-0123456789"
FILES = {
    "token": f"{TOKEN}\n",
    "read": f"prometheus: {READ}\n",
    "short": "secret\n",
    "twice": f"{OLD}\n{OLD}",
    "named": f"a: {OLD}",
    "named-read": f"a: {READ}",
    "open": TOKEN,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """All but `open` are for their owner alone."""
    for name, text in FILES.items():
        (tmp_path / name).touch(0o600)
        (tmp_path / name).write_text(text)
    (tmp_path / "open").chmod(0o644)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (OLD, [(OLD, "")]),
        (f"\n# rotated\n  {OLD}  \r\n\n{NEW}\n", [(OLD, ""), (NEW, "")]),
        (f"ops: {OLD}\nci.2:{NEW}\n", [(OLD, "ops"), (NEW, "ci.2")]),
        (f"ops = {OLD}\nci\t=\t{NEW}\n", [(OLD, "ops"), (NEW, "ci")]),
        ("c2l4dGVlbi1ieXRlcyE=\nc2l4dGVlbi1ieXRlcw==\n", [("c2l4dGVlbi1ieXRlcyE=", ""), ("c2l4dGVlbi1ieXRlcw==", "")]),
        ("ops = c2l4dGVlbi1ieXRlcw==", [("c2l4dGVlbi1ieXRlcw==", "ops")]),
    ],
)
def test_a_token_file_has_names(folder: Path, text: str, tokens: list[tuple[str, str]]) -> None:
    (folder / "token").write_text(text)

    found = read_tokens(folder / "token", "http.token_file", may_act=True)

    assert [(token.secret, token.name) for token in found] == tokens


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "holds no token"),
        ("# nothing\n\n", "holds no token"),
        (f"{OLD}\n{NEW}\n{READ}\n", "holds 3 tokens: at most 2"),
        ("too-short-secret\nshort-secret", "line 2, must hold one word of at least 16"),
        (f"two words {OLD}", "line 1, must hold"),
        ("ops: short-secret", "line 1, must hold"),
        ("ops = ", "must hold"),
    ],
)
def test_an_unusable_token_file_is_not_quoted(folder: Path, text: str, sentence: str) -> None:
    (folder / "token").write_text(text)

    with pytest.raises(ConfigError, match=r"http\.token_file") as raised:
        read_tokens(folder / "token", "http.token_file", may_act=True)

    assert sentence in str(raised.value)
    assert "secret" not in str(raised.value)
    assert OLD not in str(raised.value)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"host": "0.0.0.0"}, "loopback address, so others can reach it: set http.token_file"),
        ({"host": "::"}, "set http.token_file"),
        ({"host": "10.0.0.1", "token_file": "token"}, "set http.tls_certificate, or http.insecure"),
        ({"host": "example.org"}, "no IP address"),
        ({"token_file": "nothing"}, "cannot be read"),
        ({"token_file": "open"}, "every user of this machine may open it"),
        ({"read_token_file": "open"}, "every user of this machine may open it"),
        ({"tls_certificate": "token", "tls_key": "open"}, "every user of this machine may open it"),
        ({"token_file": "short"}, "at least 16 characters"),
        ({"read_token_file": "nothing"}, "http.read_token_file"),
        ({"host": "0.0.0.0", "read_token_file": "short"}, "at least 16 characters"),
        ({"tls_certificate": "nothing"}, "cannot be used"),
        ({"tls_key": "token"}, "http.tls_certificate is not"),
        ({"token_file": "token", "read_token_file": "token"}, "the same token"),
        ({"token_file": "twice", "read_token_file": "read"}, "the same token"),
        ({"token_file": "named", "read_token_file": "named-read"}, "same name"),
    ],
)
def test_open_servers_and_ambiguous_tokens_are_rejected(folder: Path, more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        access_of(replace(HttpSection(), **more), folder)

    assert sentence in str(raised.value)
    assert "secret" not in str(raised.value)


def test_what_is_configured_well_is_used(folder: Path) -> None:
    open_to_others = HttpSection(host="0.0.0.0", insecure=True, allowed_hosts=("Proxy.example",))
    acting = access_of(replace(open_to_others, token_file="token"), folder)
    reading = access_of(replace(open_to_others, read_token_file="read"), folder)

    assert access_of(HttpSection(), folder) == AccessRights(others_may_read=False)
    assert acting == AccessRights(False, False, TOKENS, frozenset({"proxy.example"}))
    assert (reading.tokens, reading.may_act, READ in repr(reading)) == ((Token(READ, "prometheus"),), False, False)


@given(st.text(max_size=60))
def test_whatever_is_shown_only_a_whole_token_is_one(given_text: str) -> None:
    found = shown_token(given_text, (Token(OLD), Token(READ)))

    assert (found.secret if found else None) == (given_text if given_text in (OLD, READ) else None)
