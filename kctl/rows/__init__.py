"""Types of the master's answers beyond the agents' replies (`kctl_agent.replies`), one file per kind. None is unknown;
field names are those of the JSON.

This module imports nothing, because `kctl rpc` needs the types of one command only. msgspec decodes its own types twice
as fast as dataclasses.
"""
