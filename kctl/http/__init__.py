"""The last fleet snapshot over HTTP: `app` builds it, `guard` controls access, `server` runs it in the master's
loop."""
