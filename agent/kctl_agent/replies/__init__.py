"""Replies of agents, one frozen dataclass per command. Imports none here, because each costs half a millisecond."""
