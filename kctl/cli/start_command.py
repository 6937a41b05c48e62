"""`kctl start`"""

from __future__ import annotations

import os

import typer

from kctl.cli.options import ConfigOption, SetOption, config_file, overrides

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("start")(_start)


def _start(context: typer.Context, config: ConfigOption = None, set_: SetOption = None) -> int:
    """Run a fleet.

    The master runs in this process and starts the workers. It stops in order on Ctrl-C, SIGTERM or `kctl stop`.

    \b
    kctl start -c kctl.toml
    kctl start -c kctl.toml --set workers.count=4 --set http.port=0
    """
    from kctl import logs
    from kctl.config import load

    path = config_file(context, config)
    loaded = load(path, os.environ, overrides(set_))
    logs.configure(loaded.log.level)

    from kctl.master.main import run  # half a second of imports, not needed to refuse a configuration

    return run(loaded, path.absolute())
