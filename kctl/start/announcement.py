"""The announcement of a running master: master.json in its run_dir, and its entry in the list of fleets."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from kctl import __version__, fleets
from kctl.config.sections import Config
from kctl.errors import RunDirUnusable
from kctl.start.checks import ABOUT_NAME
from kctl_agent.errors import PathError

log = logging.getLogger(__name__)


@contextlib.contextmanager
def announced(config: Config, config_path: Path, http_url: str) -> Iterator[None]:
    """Announces a running master by master.json and an entry in the list of fleets. Raises RunDirUnusable."""
    path = config.fleet.run_dir / ABOUT_NAME
    about = {
        "pid": os.getpid(),
        "start_time": time.time(),
        "version": __version__,
        "http_url": http_url,
        "config": str(config_path.absolute()),
        "fleet": config.fleet.name,
    }
    temporary = path.with_suffix(".new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(about, file)
        temporary.replace(path)
    except OSError as error:
        raise RunDirUnusable(f"{path} cannot be written ({error.strerror}): correct fleet.run_dir") from error
    entry = _listed(config, config_path)
    try:
        yield
    finally:
        if entry is not None:
            fleets.unregister(entry)
        path.unlink(missing_ok=True)


def _listed(config: Config, config_path: Path) -> Path | None:
    """Adds the entry to the list of fleets; returns None where that cannot be made. The list is a convenience: with -c
    the fleet is found without it, and a folder that cannot be written is no reason not to run (gunicorn #3551)."""
    try:
        return fleets.register(config.fleet.name, config.fleet.run_dir, config_path)
    except (PathError, OSError) as error:
        log.warning("action=not_listed path=%s: %s; name this fleet with -c", fleets.registry_dir(os.environ), error)
        return None
