"""The process around a worker, a sinker or an engine. An attached application never imports this package."""
