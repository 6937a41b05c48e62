"""Serves the last fleet snapshot over HTTP: `app` builds the application, `guard` controls access, `server` runs it in
the master's loop."""
