"""Asking over Unix sockets: `client` for one blocking call, `fan_out` for all agents under one deadline."""
