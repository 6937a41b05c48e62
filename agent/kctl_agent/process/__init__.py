"""The process around a worker, a sinker or an engine: start, end, outages and statistics."""
