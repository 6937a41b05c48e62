"""Serves the last fleet snapshot over HTTP. `app` builds the application, `guard` controls access, and `server` runs
the application in the master's event loop."""
