"""The last fleet snapshot over HTTP: `app` puts it together, `guard` lets in, `server` runs it in the master's loop."""

from __future__ import annotations

from kctl.http.access import AccessRights, access_of
from kctl.http.app import create_app
from kctl.http.groups_app import GroupsSource, groups_app
from kctl.http.server import HttpServer, bind
from kctl.http.source import SnapshotSource
from kctl.http.access import Token

__all__ = [
    "AccessRights",
    "GroupsSource",
    "HttpServer",
    "SnapshotSource",
    "Token",
    "access_of",
    "bind",
    "create_app",
    "groups_app",
]
