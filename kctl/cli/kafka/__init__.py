"""The commands of `kctl kafka`. The module `commands` declares each one and names the module that runs it."""
