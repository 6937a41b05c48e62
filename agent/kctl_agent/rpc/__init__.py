"""Questions and operations over a Unix socket: bytes (`wire`), frames (`messages`), an agent's commands and server."""
