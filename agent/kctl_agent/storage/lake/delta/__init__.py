"""A Delta table: its log, its files with statistics, stored offsets in `txn` actions."""
