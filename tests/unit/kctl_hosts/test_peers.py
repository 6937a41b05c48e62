from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from kctl.hosts.peers import Peers, PeersAccess
from kctl_agent.errors import AgentUnreachable
from tests.certificates import make_certificate


async def serve(folder: Path, seen: list[bytes]) -> tuple[asyncio.Server, str]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    return server, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_withdrawn_authority_is_sent_no_token_after_a_reload_and_the_new_one_is(tmp_path: Path) -> None:
    seen: list[bytes] = []
    folders = [tmp_path / name for name in ("old", "new")]
    for folder in folders:
        folder.mkdir()
        make_certificate(folder)
    (old, old_url), (new, new_url) = [await serve(folder, seen) for folder in folders]
    authority = tmp_path / "ca.pem"
    authority.write_text((folders[0] / "cert.pem").read_text())
    async with old, new:
        peers = Peers(PeersAccess(("reader-1",), ca=str(authority)))
        await peers.get(old_url, "/", 5.0)
        with pytest.raises(AgentUnreachable, match="its certificate is not trusted"):
            await peers.get(new_url, "/", 5.0)

        authority.write_text((folders[1] / "cert.pem").read_text())
        peers.use(PeersAccess(("reader-2",), ca=str(authority)))

        assert await peers.get(new_url, "/", 5.0) == b"{}"
        with pytest.raises(AgentUnreachable, match="its certificate is not trusted"):
            await peers.get(old_url, "/", 5.0)
        with pytest.raises(AgentUnreachable, match="its address cannot be used"):
            await peers.get("https://a:1٣", "/", 5.0)
        await peers.close()
    assert [b"reader-1" in each for each in seen] == [True, False]


async def test_a_host_that_does_not_know_the_first_token_any_more_is_shown_the_next() -> None:
    seen: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        status = b"200 OK" if b"Bearer new" in seen[-1] else b"401 Unauthorized"
        writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        peers = Peers(PeersAccess(("old", "new"), ("old", "older"), allow_plain=True))
        assert await peers.get(url, "/", 5.0) == b"{}"
        assert await peers.operate("POST", url, "/", 5.0, b"{}") == b"{}"
        await peers.close()
    assert [b"Bearer old\r" in each for each in seen] == [True, False, True, False]
