"""The application of `kctl exporter`: probes, metrics and the API of all groups, behind the same guard as a fleet's."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, PlainTextResponse

from kctl import __version__
from kctl.http import groups_api
from kctl.http.access import AccessRights
from kctl.http.errors import RESPONSES, answer_errors_in_one_shape
from kctl.http.groups_api import GroupsSource
from kctl.http.guard import Guard
from kctl.http.pages import asset, home
from kctl.http.probes import healthz, metrics, readyz
from kctl.http.server import App


def groups_app(source: GroupsSource, access: AccessRights) -> App:
    app = FastAPI(title="kctl exporter", version=__version__, docs_url=None, redoc_url=None, responses=RESPONSES)
    app.state.source = app.state.groups = source
    app.state.serves = lambda: "groups"
    app.get("/", summary="The page for people", response_class=HTMLResponse)(home)
    app.get("/assets/{digest}/{name:path}", include_in_schema=False)(asset)
    app.get("/healthz", summary="The exporter is alive")(healthz)
    app.get("/readyz", summary="Every cluster was polled in full once")(readyz)
    app.get("/metrics", summary="All metrics for Prometheus", response_class=PlainTextResponse)(metrics)
    app.include_router(groups_api.router)
    answer_errors_in_one_shape(app)
    return App(Guard(app, access))
