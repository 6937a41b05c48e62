"""`kctl kafka`: the module `commands` declares each command, and names the module that runs it."""
