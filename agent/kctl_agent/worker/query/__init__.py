"""The streaming query: the driver's side, the executors' side, and the user's transform in between."""
