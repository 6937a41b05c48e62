"""The engine: one process with one JVM, in which each worker of the fleet has its own Spark session."""
