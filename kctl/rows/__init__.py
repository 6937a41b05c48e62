"""Types of the master's answers, one module per kind; the agents' replies are in `kctl_agent.replies`. A value of None
is unknown. Fields are named as in the JSON.

This module imports nothing, because `kctl rpc` needs the types of one command only. msgspec decodes its own types twice
as fast as dataclasses.
"""
