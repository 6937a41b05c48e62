"""Types of the master's answers. The agents' replies are in `kctl_agent.replies`. A value of None is unknown. Fields
have the names in the JSON.

This module imports no other, because `kctl rpc` needs the types of one command only. The types use msgspec, which
decodes them twice as fast as dataclasses.
"""
