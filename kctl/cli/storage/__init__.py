"""`kctl storage`: one module per command; the fleet need not run."""
