"""Dead letters of a fleet, for HTTP and the command line: where they are, what is shown of them and done to them."""
