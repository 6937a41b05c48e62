"""The engine: one process, one JVM, in which the workers of a fleet have a Spark session each."""
