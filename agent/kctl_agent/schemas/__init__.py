"""Typed messages: the framing of keys and values, the schema registry, and the decoders."""
