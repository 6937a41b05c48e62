"""The jars that kctl runs next to Python, locked by sha256 and cached, and the Java that runs them."""
