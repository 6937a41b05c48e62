"""Reducers of agents' answers to one answer: pure, independent of command line, master and HTTP."""
