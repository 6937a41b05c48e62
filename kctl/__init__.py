"""The control plane: supervises Spark workers that read Kafka, reduces their answers, and publishes one snapshot."""

__version__ = "0.1.0"
__all__ = ["__version__"]
