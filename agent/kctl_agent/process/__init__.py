"""What only a process of ours needs, a worker or a sinker; an attached application never imports it."""
