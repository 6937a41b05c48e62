"""Messages in one SQLite file, for all workers and sinkers of a host."""

from kctl_agent.storage.file.storage import FileStorage

__all__ = ["FileStorage"]
