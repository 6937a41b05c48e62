"""The last fleet snapshot over HTTP: `app` puts it together, `guard` lets in, `server` runs it in the master's loop."""

from __future__ import annotations

from kctl.http.access import Access, access_of
from kctl.http.app import App, create_app
from kctl.http.groups_app import GroupsApp, GroupsSource
from kctl.http.server import HttpServer, bind
from kctl.http.source import Source
from kctl.http.tokens import Token

__all__ = [
    "Access",
    "App",
    "GroupsApp",
    "GroupsSource",
    "HttpServer",
    "Source",
    "Token",
    "access_of",
    "bind",
    "create_app",
]
