"""`kctl start`: starts a fleet."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from kctl.children import PRIVATE, python_module, safe_environment
from kctl.cli.command import CONFIG, SET, Command, Option
from kctl.cli.fleet.operations import carry_out
from kctl.cli.options import config_file, overrides
from kctl.cli.output import echo
from kctl.errors import RunDirUnusable
from kctl.fleets import announced, find
from kctl.ownership import open_regular

if TYPE_CHECKING:
    from kctl.config.sections import Config

_POLL_SECONDS = 0.05


def _run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    if options.name is not None:
        carry_out(find(options.config, env), "start", {"name": options.name}, "table", deadline=None)
        return 0
    from kctl import logs
    from kctl.config.load import load

    path, settings = config_file(options, env), overrides(options)
    loaded = load(path, env, settings)
    if options.daemon:
        return _detach(loaded, path, options.set or [])
    logs.configure(loaded.log.level)

    from kctl.start.master import run  # half a second of imports, not needed to refuse a configuration

    return run(loaded, path.absolute(), reread=lambda: load(path, env, settings))


def _detach(config: Config, path: Path, assignments: list[str]) -> int:
    log_path = config.fleet.log_dir / "master.log"
    os.umask(PRIVATE)
    try:
        log_path.parent.mkdir(parents=True, exist_ok=True)
        log = os.fdopen(open_regular(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")
    except OSError as error:
        raise RunDirUnusable(f"{log_path} cannot be written ({error.strerror}): correct fleet.log_dir") from None
    words = ["-c", str(path.absolute()), "start", *(word for each in assignments for word in ("--set", each))]
    begin = log.tell()
    with log:
        master = subprocess.Popen(
            python_module("kctl", *words),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=safe_environment(),
        )
    pause = Event()
    while master.poll() is None:
        if announced(config.fleet.run_dir).get("pid") == master.pid:
            echo(f"fleet {config.fleet.name} runs, master pid {master.pid}, log {log_path}")
            return 0
        pause.wait(_POLL_SECONDS)
    with log_path.open("rb") as written:
        written.seek(begin)
        sys.stderr.write(written.read().decode("utf-8", "replace"))
    return master.returncode


COMMAND = Command(
    "start",
    "Run a fleet, or start a process of a running one.",
    (
        Option(("NAME",), "a worker, a sinker or `engine` that is stopped, fatal or waiting for its next try"),
        CONFIG._replace(
            help="the fleet's kctl.toml. Default: KCTL_CONFIG, ./kctl.toml or, with NAME, your only running fleet"
        ),
        SET,
        Option(("--daemon",), "return once the fleet runs; writes log_dir/master.log and run_dir/master.pid", "flag"),
    ),
    "kctl start -c kctl.toml\nkctl start -c kctl.toml --set workers.count=4 --set http.port=0\nkctl start worker-1",
    "The master runs in this process and starts the workers. Ctrl-C, SIGTERM and `kctl stop` stop the fleet "
    "gracefully; a second signal ends it at once, with exit code 1 if that killed workers. SIGHUP does the same as "
    "`kctl reload`. The master notifies systemd when it is ready and while it is alive (Type=notify, WatchdogSec=).",
    run=_run,
)
