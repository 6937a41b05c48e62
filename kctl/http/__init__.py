"""The last fleet snapshot over HTTP: `app` has the routes, `server` the socket and uvicorn in the master's own loop."""

from __future__ import annotations

from kctl.http.app import create_app
from kctl.http.server import HttpServer, bind

__all__ = ["HttpServer", "bind", "create_app"]
