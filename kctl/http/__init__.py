"""The last fleet snapshot over HTTP: `app` puts it together, `guard` lets in, `server` runs it in the master's loop."""
