"""Replies of agents, one frozen dataclass per command. Imports none of them, because each import takes 0.5 ms."""
