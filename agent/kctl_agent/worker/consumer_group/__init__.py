"""The worker as a member of its consumer group, and what the group has committed."""
