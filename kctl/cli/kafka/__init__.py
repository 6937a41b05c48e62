"""The commands of `kctl kafka`: `commands` declares them and names the module of each."""
