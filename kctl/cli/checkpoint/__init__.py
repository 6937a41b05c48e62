"""`kctl checkpoint`: Spark jobs that kctl does not run, observed through their checkpoints."""
