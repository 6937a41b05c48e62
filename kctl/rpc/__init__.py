"""Asking over Unix sockets: `client` for one blocking call, `fan_out` for all agents under one deadline."""

from __future__ import annotations

__all__: list[str] = []
