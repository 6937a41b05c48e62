"""Pure functions that reduce agents' answers to one answer, independent of command line, master and HTTP."""
