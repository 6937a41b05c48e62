"""A Delta table: its log read and written, its files with their statistics, stored offsets in its `txn` actions."""
