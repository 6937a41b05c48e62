"""Spark drivers of kctl: their properties, JVM, session and callbacks."""
