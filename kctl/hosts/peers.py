"""HTTPS requests to the masters of other hosts, over persistent connections."""

import asyncio
import contextlib
import ssl
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpcore

from kctl_agent.errors import AgentTimeout, AgentUnreachable, BadRequest, NotPermitted

_MAX_BYTES: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PeersAccess:
    """Tokens and certificates for requests to other hosts. Unless `allow_plain` is true, tokens go only to servers with
    a certificate that `ca` verifies."""

    tokens: tuple[str, ...] = ()
    """Tried in turn, because during a replacement a host may know only the second."""
    operations_tokens: tuple[str, ...] = ()
    ca: str | None = None  # the file of the trusted certificates; None: the system's
    allow_plain: bool = False


class Peers:
    """A client for requests to other masters. Use it and `close` it on one event loop."""

    def __init__(self, access: PeersAccess) -> None:
        """Reads the certificates. Raises OSError."""
        self._pools: dict[str, httpcore.AsyncConnectionPool] = {}
        """One pool per address, because httpcore 1.0 searches all connections of a pool for each request."""
        self._former: list[httpcore.AsyncConnectionPool] = []  # pools that use replaced certificates
        self._authorities: bytes | None = None
        self.use(access)

    def use(self, access: PeersAccess) -> None:
        """Switches to other tokens and certificates. New certificates of `ca` need new connections. Raises OSError."""
        authorities = None if access.ca is None else Path(access.ca).read_bytes()
        self._context = ssl.create_default_context(cafile=access.ca)
        if authorities != self._authorities:
            self._former += self._pools.values()
            self._pools = {}
        self._access, self._authorities = access, authorities

    async def close(self) -> None:
        await self.keep(())

    async def keep(self, urls: Collection[str]) -> None:
        former, self._former = self._former, []
        for pool in [*former, *(self._pools.pop(url) for url in self._pools.keys() - set(urls))]:
            await pool.aclose()

    async def get(self, url: str, path: str, seconds: float) -> bytes:
        """Returns the body of a successful answer. Raises AgentUnreachable, AgentTimeout or NotPermitted. Raises
        BadRequest if the host rejects the request."""
        status, body = await self._exchanged("GET", url, path, seconds, self._access.tokens)
        if status != 200:
            kind = NotPermitted if status in (401, 403) else BadRequest if status < 500 else AgentUnreachable
            raise kind(f"it answered with the HTTP status {status}{_why(status)}")
        return body

    async def operate(self, method: str, url: str, path: str, seconds: float, body: bytes = b"") -> bytes:
        """Requests an operation. Returns the answer's body, regardless of the HTTP status. Raises AgentUnreachable or
        NotPermitted if nothing was sent. Raises AgentTimeout if there is no complete answer."""
        _, answer = await self._exchanged(method, url, path, seconds, self._access.operations_tokens, body)
        return answer

    async def _exchanged(
        self, method: str, url: str, path: str, seconds: float, tokens: Sequence[str], body: bytes = b""
    ) -> tuple[int, bytes]:
        if url.startswith("http://") and not self._access.allow_plain:
            raise NotPermitted("its address is http://, and hosts.allow_plain is not set: nothing was sent")
        headers = [("Accept", "application/json")]
        if tokens:
            headers.append(("Authorization", f"Bearer {tokens[0]}"))
        if method == "POST":
            headers.append(("Content-Type", "application/json"))
        if url not in self._pools:
            # A server keeps an idle connection for longer (`kctl.http.server`).
            self._pools[url] = httpcore.AsyncConnectionPool(self._context, keepalive_expiry=15.0)
        try:
            # httpcore follows no redirects, so the token does not reach another address.
            async with (
                asyncio.timeout(seconds),
                self._pools[url].stream(method, f"{url}{path}", headers=headers, content=body or None) as response,
            ):
                status, answer = response.status, await _body(response)
                if status != 401 or len(tokens) < 2:
                    return status, answer
        except httpcore.ConnectError as error:
            raise AgentUnreachable(_reason(error)) from None
        except TimeoutError:
            raise AgentTimeout("no answer in time") from None
        except (TypeError, ValueError) as error:
            raise AgentUnreachable(f"its address cannot be used: {error}") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError) as error:
            raise AgentTimeout(_reason(error)) from None
        return await self._exchanged(method, url, path, seconds, tokens[1:], body)


async def _body(response: httpcore.Response) -> bytes:
    body = bytearray()
    async for part in response.aiter_stream():
        body += part
        if len(body) > _MAX_BYTES:
            raise AgentTimeout(f"its answer is larger than {_MAX_BYTES >> 20} MiB")
    return bytes(body)


def _why(status: int) -> str:
    if status in (401, 403):
        return ": is hosts.token_file a token of its http.read_token_file?"
    return ": is it of this release?" if status == 404 else ""


def _reason(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    if text == "All connection attempts failed":  # anyio's words
        return "no process listens at its address, or it cannot be reached"
    if "certificate verify failed" in text:
        with contextlib.suppress(IndexError):
            text = text.split("certificate verify failed: ")[1].split(" (_ssl")[0]
        return f"its certificate is not trusted ({text}); nothing was sent"
    return text
