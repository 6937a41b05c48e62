"""Replies of agents, one frozen dataclass per command. This module does not import them: each import takes 0.5 ms."""
