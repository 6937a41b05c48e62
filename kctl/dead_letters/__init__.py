"""Opens, shows and changes the dead letters of a fleet, for HTTP and the command line."""
