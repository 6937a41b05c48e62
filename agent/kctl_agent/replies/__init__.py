"""Replies of agents, one frozen dataclass per command. Imports nothing: each dataclass costs half a millisecond."""
