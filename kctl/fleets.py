"""Finds the fleet that a command is for. `-c`, `KCTL_CONFIG` or `./kctl.toml` names it, or it is this user's only
running fleet. Each running master has a file in its user's registry folder."""

import contextlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kctl.errors import ConfigError, NoSocketFile, UsageError
from kctl.ownership import refuse_others
from kctl_agent.errors import PathError
from kctl_agent.paths import ProcessIdentity, is_alive, prepare_run_dir, process_identity

ABOUT_NAME = "master.json"


class Fleet(NamedTuple):
    name: str
    run_dir: Path
    config: Path
    master: ProcessIdentity | None = None


def registry_dir(env: Mapping[str, str] = os.environ) -> Path:
    """Returns `$XDG_RUNTIME_DIR/kctl`. Returns `/tmp/kctl-<uid>` if the variable is unset (cron, services) or names
    another user's folder (after `su`)."""
    runtime = env.get("XDG_RUNTIME_DIR")
    if runtime and _is_own_folder(runtime):
        return Path(runtime, "kctl")
    return Path(f"/tmp/kctl-{os.geteuid()}")  # noqa: S108 - prepare_run_dir rejects it unless it is ours alone


def _is_own_folder(path: str) -> bool:
    try:
        refuse_others(Path(path))
        status = os.stat(path)
    except (ConfigError, OSError):
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def register(name: str, run_dir: Path, config: Path, env: Mapping[str, str] = os.environ) -> Path:
    """Writes this master's file to its user's registry. Returns the path for `unregister`. Raises PathError if
    other users can access the registry, and OSError if writing fails."""
    folder = registry_dir(env)
    prepare_run_dir(folder)
    own = process_identity()
    entry = folder / f"{own.pid}.json"
    temporary = entry.with_suffix(".new")
    known = {"name": name, "run_dir": str(run_dir.absolute()), "config": str(config.absolute()), **own._asdict()}
    temporary.write_text(json.dumps(known), encoding="utf-8")
    temporary.replace(entry)
    return entry


def unregister(entry: Path) -> None:
    with contextlib.suppress(OSError):
        entry.unlink(missing_ok=True)


def running(env: Mapping[str, str] = os.environ) -> list[Fleet]:
    """Returns this user's fleets with a live master, sorted by name and path. Raises PathError."""
    folder = registry_dir(env)
    if not folder.exists():
        return []
    prepare_run_dir(folder)
    fleets = []
    for entry in folder.glob("*.json"):
        fleet = _read(entry)
        if fleet is not None and fleet.master is not None and is_alive(fleet.master):
            fleets.append(fleet)
        else:
            unregister(entry)  # a killed master leaves its file
    return sorted(fleets, key=lambda fleet: (fleet.name, str(fleet.config)))


def named(config: Path | None, env: Mapping[str, str]) -> Path | None:
    """Returns the configuration file that `-c` (`config`) or KCTL_CONFIG names, or else ./kctl.toml. Returns None
    if ./kctl.toml is missing or another user (except root) owns it. Raises UsageError if `config` is empty."""
    if config == Path():
        raise UsageError("-c takes a FILE, not a folder or an empty text")
    if config is not None or env.get("KCTL_CONFIG"):
        return config or Path(env["KCTL_CONFIG"])
    here = Path("kctl.toml")
    try:
        return here if here.stat().st_uid in (0, os.geteuid()) else None
    except OSError:
        return None


def find(config: Path | None = None, env: Mapping[str, str] = os.environ) -> Fleet:
    """Returns the fleet that `-c` (`config`), KCTL_CONFIG or ./kctl.toml names, or else the only running fleet.

    If the fleet is running, does not read its configuration, which may have become invalid. Raises ConfigError,
    PathError, NoSocketFile (no fleet is running) or UsageError (several are).
    """
    path = named(config, env)
    try:
        fleets = running(env)
    except PathError:
        if path is None:
            raise
        fleets = []  # a named fleet does not need the registry
    if path is not None:
        same = [fleet for fleet in fleets if fleet.config == path.absolute()]
        return same[0] if len(same) == 1 else _from_config(path, env)
    if not fleets:
        raise NoSocketFile(
            "you have no running fleet; start one with `kctl start -c kctl.toml`, or name it with -c or KCTL_CONFIG"
        )
    if len(fleets) > 1:
        listed = "".join(f"\n  {fleet.name}  -c {fleet.config}" for fleet in fleets)
        raise UsageError(f"you have {len(fleets)} running fleets; name one:{listed}")
    return fleets[0]


def announced(run_dir: Path) -> dict[str, Any]:
    """Returns the content of a master's master.json, or an empty dict if the file cannot be read."""
    try:
        about: dict[str, Any] = json.loads((run_dir / ABOUT_NAME).read_text(encoding="utf-8"))
        return about
    except (OSError, ValueError):
        return {}


def _from_config(path: Path, env: Mapping[str, str]) -> Fleet:
    from kctl.config.load import load

    config = load(path, env)
    return Fleet(config.fleet.name, config.fleet.run_dir, config.path)


def _read(entry: Path) -> Fleet | None:
    try:
        record = json.loads(entry.read_text(encoding="utf-8"))
        return Fleet(
            name=str(record["name"]),
            run_dir=Path(record["run_dir"]),
            config=Path(record["config"]),
            master=ProcessIdentity(int(record["pid"]), int(record["start_ticks"])),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
