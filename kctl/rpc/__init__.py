"""Asks over Unix sockets: `client` makes one blocking call, `fan_out` asks all agents under one deadline."""
