"""The origin of a browser's request from its headers Host, Origin and Sec-Fetch-Site. Pure.

Other clients may send anything: this keeps pages of other sites out, tokens keep all others out.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")


def host_name(host: str) -> str | None:
    """Name or address of a Host header in lower case, without the port; None if malformed. An IPv6 address keeps its
    brackets, because it is not a host without them."""
    match = _HOST.fullmatch(host)
    if match is None:
        return None
    address, name = match.groups()
    return f"[{address.lower()}]" if address else str(name).lower()


def is_loopback_name(name: str) -> bool:
    """Whether the name is `localhost`, in 127.0.0.0/8, or `[::1]`. A name that only begins with `127.` may be anyone's
    and resolve to 127.0.0.1 (DNS rebinding)."""
    if name == "localhost":
        return True
    try:
        if name.startswith("["):
            return ipaddress.IPv6Address(name[1:-1]).is_loopback
        return ipaddress.IPv4Address(name).is_loopback
    except ValueError:
        return False


def is_same_origin(origin: str, host: str) -> bool:
    """Whether a page of `origin` was served under this Host. Raises ValueError if `origin` is malformed."""
    return urlsplit(origin).netloc.lower() == host.lower()


def is_opened(sec_fetch_mode: str | None, sec_fetch_dest: str | None) -> bool:
    """Whether a person follows a link or opens a window; not a frame or a page's request."""
    return (sec_fetch_mode, sec_fetch_dest) == ("navigate", "document")


def is_cross_site(sec_fetch_site: str | None) -> bool:
    """Older browsers and other clients send no such header."""
    return sec_fetch_site is not None and sec_fetch_site.strip().lower() == "cross-site"
