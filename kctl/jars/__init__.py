"""The jars that kctl runs beside Python: locked by sha256, fetched once into a cache; and the Java that runs them.

`lock` has which and whether they are there, `fetcher` brings them, `ivy` is the download, `java` finds Java.
"""
