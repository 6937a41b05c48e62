"""`kctl storage`, for which the fleet need not run."""
