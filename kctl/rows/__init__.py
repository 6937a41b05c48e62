"""Types of the master's answers, one file per kind; the agents' replies are in `kctl_agent.replies`. None is unknown;
field names are those of the JSON.

This module imports nothing, because `kctl rpc` needs the types of one command only. msgspec decodes its own types twice
as fast as dataclasses.
"""
