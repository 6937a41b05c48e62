from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.config.sections import HttpSection
from kctl.errors import ConfigError
from kctl.http.access import AccessRights, Token, access_of, read_tokens, shown_token
from tests.fleet_snapshot import ask, snapshot

OLD, NEW, READ = "an-old-token-0123456789", "a-new-token-0123456789", "a-read-token-0123456789"
ROTATED = AccessRights(
    is_loopback=False,
    tokens=(Token(OLD, "deploy-1", may_act=True), Token(NEW, may_act=True), Token(READ, "prometheus")),
)


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "tokens"
        path.touch(0o600)
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (OLD, [(OLD, "")]),
        (f"{OLD}\n", [(OLD, "")]),
        (f"\n# rotated\n  {OLD}  \r\n\n{NEW}\n", [(OLD, ""), (NEW, "")]),
        (f"ops: {OLD}\nci.2:{NEW}\n", [(OLD, "ops"), (NEW, "ci.2")]),
        (f"ops = {OLD}\nci\t=\t{NEW}\n", [(OLD, "ops"), (NEW, "ci")]),
        ("c2l4dGVlbi1ieXRlcyE=\nc2l4dGVlbi1ieXRlcw==\n", [("c2l4dGVlbi1ieXRlcyE=", ""), ("c2l4dGVlbi1ieXRlcw==", "")]),
        ("ops = c2l4dGVlbi1ieXRlcw==", [("c2l4dGVlbi1ieXRlcw==", "ops")]),
    ],
)
def test_a_token_file_has_names(written: Callable[[str], Path], text: str, tokens: list[tuple[str, str]]) -> None:
    found = read_tokens(written(text), "http.token_file", may_act=True)

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
def test_an_unusable_token_file_is_not_quoted(written: Callable[[str], Path], text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=r"http\.token_file") as raised:
        read_tokens(written(text), "http.token_file", may_act=True)

    assert sentence in str(raised.value)
    assert "secret" not in str(raised.value)
    assert OLD not in str(raised.value)


@pytest.mark.parametrize(
    ("act", "read", "sentence"),
    [(OLD, OLD, "the same token"), (f"{OLD}\n{OLD}", READ, "the same token"), (f"a: {OLD}", f"a: {READ}", "same name")],
)
def test_a_token_has_one_meaning(tmp_path: Path, act: str, read: str, sentence: str) -> None:
    (tmp_path / "act").touch(0o600)
    (tmp_path / "act").write_text(act)
    (tmp_path / "read").touch(0o600)
    (tmp_path / "read").write_text(read)

    with pytest.raises(ConfigError, match=sentence):
        access_of(replace(HttpSection(), token_file="act", read_token_file="read"), tmp_path)


def test_a_fleet_beyond_loopback_may_be_served_for_reading_alone(tmp_path: Path) -> None:
    (tmp_path / "read").touch(0o600)
    (tmp_path / "read").write_text(f"prometheus: {READ}\n")

    access = access_of(replace(HttpSection(), host="0.0.0.0", read_token_file="read", insecure=True), tmp_path)

    assert access.tokens == (Token(READ, "prometheus"),)
    assert not access.may_act
    assert READ not in repr(access)


@given(st.text(max_size=60))
def test_whatever_is_shown_only_a_whole_token_is_one(given_text: str) -> None:
    found = shown_token(given_text, ROTATED.tokens)

    assert (found.secret if found else None) == (given_text if given_text in (OLD, NEW, READ) else None)


async def code(token: str, method: str, access: AccessRights = ROTATED, scheme: str = "Bearer") -> tuple[int, str]:
    if scheme == "Basic":
        token = base64.b64encode(f"me:{token}".encode()).decode()
    response = await ask(snapshot(), "/api/v1/lag", method, access, headers={"authorization": f"{scheme} {token}"})
    return response.status_code, response.json().get("error", {}).get("code", "")


async def test_while_a_token_is_rotated_the_old_and_the_new_one_are_both_valid() -> None:
    for token in (OLD, NEW):
        assert await code(token, "GET") == (200, "")
        assert await code(token, "POST") == (405, "method_not_allowed"), "let in: there is no such route"


@pytest.mark.shows("the scraper's token only reads; two are valid during a rotation; the audit log names it")
async def test_the_scrapers_token_reads_and_cannot_act() -> None:
    assert await code(READ, "GET") == (200, "")
    assert await code(READ, "GET", scheme="Basic") == (200, "")
    for method in ("POST", "PUT", "PATCH", "DELETE", "X"):
        assert await code(READ, method) == (403, "not_allowed")
    on_loopback = replace(ROTATED, is_loopback=True)
    assert await code(READ, "POST", on_loopback) == (403, "not_allowed")


async def test_where_there_are_only_read_tokens_nothing_can_be_changed() -> None:
    access = AccessRights(tokens=(Token(READ),))

    assert await code(READ, "GET", access) == (200, "")
    assert await code(READ, "POST", access) == (403, "not_allowed")
