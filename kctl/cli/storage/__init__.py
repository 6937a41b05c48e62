"""`kctl storage`: commands that do not need a running fleet."""
