"""`kctl exporter`: runs the exporter."""

import argparse
from collections.abc import Mapping
from functools import partial

from kctl.cli.command import CONFIG, SET, Command, Option
from kctl.cli.options import overrides
from kctl.errors import UsageError
from kctl.fleets import named


def _run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    from kctl import logs
    from kctl.config.load import load_exporter

    path = options.config if options.bootstrap is not None else named(options.config, env)
    if path is None and options.bootstrap is None:
        raise UsageError("name the clusters: -c FILE with [clusters.NAME], or -b HOST:PORT")
    load = partial(load_exporter, path, env, overrides(options), options.bootstrap)
    loaded = load()
    logs.configure(loaded.log.level)

    from kctl.start.exporter import run_exporter  # half a second of imports, not needed to refuse a configuration

    return run_exporter(loaded, load)


COMMAND = Command(
    "exporter",
    "Serve lag and state of every consumer group as metrics.",
    (
        CONFIG,
        Option(("--bootstrap", "-b"), "one cluster, unencrypted, without a configuration file", metavar="HOST:PORT"),
        SET,
    ),
    "kctl exporter -b 127.0.0.1:9092\nkctl exporter -c exporter.toml --set http.port=9308",
    "The clusters come from [clusters.NAME], or without such a section from [kafka]. The exporter runs in this "
    "process until Ctrl-C or SIGTERM. It notifies systemd when it is ready and while it is alive (Type=notify, "
    "WatchdogSec=). On SIGHUP, it reads its configuration again.",
    run=_run,
)
