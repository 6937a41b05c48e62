"""Spark as a driver starts it and reaches it: properties, JVM, session, callbacks."""

from __future__ import annotations

__all__: list[str] = []
