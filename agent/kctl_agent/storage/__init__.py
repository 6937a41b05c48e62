"""Where fetched messages go: the contract (`base`), the kinds of storage (`kinds`), and a file or folder for each
kind."""
