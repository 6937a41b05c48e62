"""Replies of agents: one frozen dataclass per command for both sides. Imports nothing, because each dataclass costs
half a millisecond."""
