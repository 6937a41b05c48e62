"""`kctl storage`: one module per command; they work whether the fleet runs or not."""
