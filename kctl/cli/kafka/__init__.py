"""The commands `kctl kafka`: one module per command; `parser` picks it, from the table in `options`."""
