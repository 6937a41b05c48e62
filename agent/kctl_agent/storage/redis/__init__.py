"""Messages in Redis, for workers and sinkers on any host."""

from kctl_agent.storage.redis.storage import RedisStorage

__all__ = ["RedisStorage"]
