"""`kctl checkpoint`: jobs of Spark that kctl does not run, by their checkpoints."""
