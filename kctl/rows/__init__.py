"""Types of the master's answers beyond the agents' replies (`kctl_agent.replies`): one file per kind.

Nothing is imported here, for `kctl rpc` needs those of one command. They are msgspec's own types where no agent has
them: they are made in no time, and decoded twice as fast as dataclasses. None is unknown. The names of fields are those
of the JSON.
"""
