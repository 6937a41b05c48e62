"""Types of the master's answers. The agents' replies are in `kctl_agent.replies`. None means unknown.

Fields are named as in the JSON. The package does not import its modules, so that `kctl rpc` imports only the types of
one command. The types use msgspec, which decodes them twice as fast as dataclasses.
"""
