"""Reducers of the agents' answers to one: they are pure, and know no command line, no master and no HTTP."""
