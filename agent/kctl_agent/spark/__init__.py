"""A Spark driver of kctl: properties, JVM, session, callbacks."""

from __future__ import annotations

__all__: list[str] = []
