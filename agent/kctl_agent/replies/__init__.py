"""Replies of agents, one frozen dataclass per command. Imports nothing, because each dataclass costs half a
millisecond."""
