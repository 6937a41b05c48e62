"""Where fetched messages go: one contract (`base`), what kinds there are (`kinds`), and a file or folder for each."""
