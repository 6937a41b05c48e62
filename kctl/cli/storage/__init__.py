"""The commands of `kctl storage`, which do not need a running fleet."""
