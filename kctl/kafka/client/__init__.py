"""One cluster as a client reaches it: access, connections, deadlines, and what errors of brokers mean."""
