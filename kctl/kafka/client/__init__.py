"""A client of one cluster: access, connections, deadlines, and the meaning of brokers' errors."""
