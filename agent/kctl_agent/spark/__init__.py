"""A Spark driver of kctl: properties, JVM, session, callbacks."""
