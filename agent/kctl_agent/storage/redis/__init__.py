"""Messages in Redis, for workers and sinkers on any host."""

from __future__ import annotations

from kctl_agent.storage.redis.storage import RedisStorage

__all__ = ["RedisStorage"]
