"""The worker as a member of its consumer group."""
