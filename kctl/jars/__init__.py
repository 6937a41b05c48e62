"""The jars that kctl needs, locked by sha256 and cached, and the Java that runs them."""
