"""The commands of `kctl kafka`: `commands` declares them, and which module runs each."""
