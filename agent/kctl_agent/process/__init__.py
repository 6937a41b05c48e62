"""The process around a worker, a sinker or an engine; an attached application never imports it."""
