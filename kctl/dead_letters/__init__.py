"""Dead letters of a fleet, for HTTP and the command line: where they are, how they are shown, and changes to them."""
