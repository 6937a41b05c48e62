"""The version of kctl and kctl-agent."""

__version__ = "0.1.0"
