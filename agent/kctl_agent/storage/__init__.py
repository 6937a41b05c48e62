"""Storages for fetched messages: the contract (`base`), the kinds (`kinds`), and one file or folder for each kind."""
