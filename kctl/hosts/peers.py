"""Questions to the masters of other hosts, over HTTPS and kept connections."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass
from typing import Final

import httpcore

from kctl_agent.errors import AgentTimeout, AgentUnreachable, NotPermitted

_MAX_BYTES: Final = 256 * 1024 * 1024
_KEPT_SECONDS: Final = 15.0
"""Less than a server keeps a connection that asks nothing (`kctl.http.server`)."""


@dataclass(frozen=True, slots=True)
class PeersAccess:
    """The right to ask other hosts. A token is sent to a server with a certificate of `ca`, and to no other, unless
    `allow_plain`."""

    token: str | None = None
    ca: str | None = None
    """A file with certificates; None: those that the system trusts."""
    allow_plain: bool = False


class Peers:
    """A client of other masters. Belongs to one event loop; `close` it there."""

    def __init__(self, access: PeersAccess) -> None:
        self._access = access
        context = ssl.create_default_context(cafile=access.ca)
        self._pool = httpcore.AsyncConnectionPool(context, max_connections=1000, keepalive_expiry=_KEPT_SECONDS)

    async def close(self) -> None:
        await self._pool.aclose()

    async def get(self, url: str, path: str, seconds: float) -> bytes:
        """Returns the body that is answered with. Follows nothing to elsewhere, and uses no proxy.

        Raises:
            AgentUnreachable, AgentTimeout, NotPermitted: with the reason.
        """
        if url.startswith("http://") and not self._access.allow_plain:
            raise NotPermitted("its address is http://, and hosts.allow_plain is not set: nothing was sent")
        headers = [("Host", url.partition("://")[2]), ("Accept", "application/json")]
        if self._access.token is not None:
            headers.append(("Authorization", f"Bearer {self._access.token}"))
        try:
            async with asyncio.timeout(seconds):
                return await self._read(f"{url}{path}", headers)
        except TimeoutError:
            raise AgentTimeout("no answer in time") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError) as error:
            raise AgentUnreachable(_reason(error)) from None

    async def _read(self, url: str, headers: list[tuple[str, str]]) -> bytes:
        body = bytearray()
        async with self._pool.stream("GET", url, headers=headers) as response:
            async for part in response.aiter_stream():
                body += part
                if len(body) > _MAX_BYTES:
                    raise AgentUnreachable(f"its answer is larger than {_MAX_BYTES >> 20} MiB")
            if response.status != 200:
                kind = NotPermitted if response.status in (401, 403) else AgentUnreachable
                raise kind(f"it answered with the HTTP status {response.status}{_why(response.status)}")
        return bytes(body)


def _why(status: int) -> str:
    if status in (401, 403):
        return ": is hosts.token_file a token of its http.read_token_file?"
    return ": is it of this release?" if status == 404 else ""


def _reason(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    if "certificate verify failed" in text:
        with contextlib.suppress(IndexError):
            text = text.split("certificate verify failed: ")[1].split(" (_ssl")[0]
        return f"its certificate is not trusted ({text}); nothing was sent"
    return text
