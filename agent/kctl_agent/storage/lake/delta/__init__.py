"""A Delta table: its log, its files with statistics, and stored offsets in `txn` actions."""
