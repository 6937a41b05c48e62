"""The control plane. It supervises Spark workers that read Kafka, and combines their answers into one snapshot."""

__version__ = "0.1.0"
__all__ = ["__version__"]
