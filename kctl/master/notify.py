"""Notifies systemd about a service (sd_notify(3)): one datagram to NOTIFY_SOCKET, if set. Ignores failures."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping


def notify(*words: str, env: Mapping[str, str] = os.environ) -> bool:
    """Sends `READY=1`, `STOPPING=1`, `STATUS=…`; returns whether systemd listens."""
    path = env.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return False
    address = "\0" + path[1:] if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(words).encode(), address)
    except OSError:
        return False
    return True


def watchdog_seconds(env: Mapping[str, str] = os.environ) -> float | None:
    """How often to report: half of WatchdogSec=; None if systemd does not watch."""
    if env.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        return int(env["WATCHDOG_USEC"]) / 2e6
    except (KeyError, ValueError):
        return None


async def pet_watchdog() -> None:
    """Reports to systemd's watchdog periodically; without a watchdog, waits forever."""
    seconds = watchdog_seconds()
    while True:
        if seconds is not None:
            notify("WATCHDOG=1")
        await asyncio.sleep(3600 if seconds is None else seconds)
