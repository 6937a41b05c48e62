"""Questions and operations over a Unix socket, and the agent that answers them."""
