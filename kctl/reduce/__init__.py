"""Pure functions that reduce agents' answers to one; independent of command line, master and HTTP."""
