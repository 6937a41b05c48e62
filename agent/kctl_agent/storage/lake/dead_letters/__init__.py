"""The table of messages whose transform failed, and how they are requeued."""
