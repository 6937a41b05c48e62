"""`kctl exporter`"""

from __future__ import annotations

import os
from typing import Annotated

from kctl.cli.command import option
from kctl.cli.options import ConfigOption, SetOption, overrides
from kctl.cli.signature import command
from kctl.errors import UsageError
from kctl.fleets import named


def _exporter(
    config: ConfigOption = None,
    servers: Annotated[
        str | None,
        option(
            "--bootstrap",
            "-b",
            metavar="HOST:PORT",
            help="One cluster, unencrypted, without a configuration file.",
        ),
    ] = None,
    set_: SetOption = None,
) -> int:
    """Serve lag and state of every consumer group as metrics.

    The clusters come from [clusters.NAME], or without such a section from [kafka]. The exporter runs in this process
    until Ctrl-C or SIGTERM. It notifies systemd when it is ready and while it is alive (Type=notify, WatchdogSec=).
    SIGHUP makes it read its file again.

    kctl exporter -b 127.0.0.1:9092
    kctl exporter -c exporter.toml --set http.port=9308
    """
    from kctl import logs
    from kctl.config.load import ExporterConfig, load_exporter

    path = config
    if servers is None:
        path = named(path, os.environ)
    if path is None and servers is None:
        raise UsageError("name the clusters: -c FILE with [clusters.NAME], or -b HOST:PORT")

    def load() -> ExporterConfig:
        return load_exporter(path, os.environ, overrides(set_), servers)

    loaded = load()
    logs.configure(loaded.log.level)

    from kctl.start.exporter import run_exporter  # half a second of imports, not needed to refuse a configuration

    return run_exporter(loaded, load)


COMMAND = command("exporter", _exporter)
