"""From a TOML file, `KCTL_*` variables and flags to a checked `Config`; each later one wins over the earlier."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from kctl.config import contexts
from kctl.config.document import read_document
from kctl.config.lake import check_lake, uri_hint
from kctl.config.sections import SECTIONS, Cluster, Config, size_bytes
from kctl.config.storage import table_folder
from kctl.config.tables import named_tables
from kctl.config.values import allowed, from_text, from_toml, shown_url
from kctl.errors import ConfigError
from kctl.ownership import refuse_others

__all__ = ["CLUSTERS", "check_together", "clusters", "is_setting_variable", "load", "read", "sections", "variable"]

CLUSTERS = "clusters"


def load(path: Path, env: Mapping[str, str], overrides: Mapping[str, str] | None = None) -> Config:
    """Read and check a configuration: defaults < file < environment < overrides (`section.key` -> text, from flags).

    Relative paths, wherever they were given, are taken relative to the folder of the file and come back absolute.

    Raises:
        ConfigError: no such file, a syntax error, an unknown or missing key, a value that is not allowed; or we are
            root, and the file or one of the fleet's folders is another user's.
    """
    path = path.absolute()
    values, sources, _ = read(path, env, overrides)
    if "fleet.data_dir" in values:
        values.setdefault("storage.path", values["fleet.data_dir"] / "storage.sqlite")
    config = Config(
        path=path,
        sources={name: sources.get(name, "default") for name in _SETTINGS},
        **sections(path, values, SECTIONS),
    )
    check_together(config)
    fleet = config.fleet
    for place in (fleet.run_dir, fleet.data_dir, fleet.log_dir, config.storage.path, table_folder(config)):
        if place is not None:
            refuse_others(place)
    return config


def read(
    path: Path | None, env: Mapping[str, str], overrides: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], dict[str, str], dict[str, Any]]:
    """The values that were given, each where it came from, and the file's tables; `path` None: there is no file.

    Raises:
        ConfigError: as `load`, but for what is missing.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    document = {} if path is None else read_document(path)
    for name, value in {} if path is None else _file_values(document, path).items():
        values[name] = _accepted(name, value, f"{path}", from_toml)
        sources[name] = "file"
    for name, (origin, text) in _variables(env).items():
        values[name] = _accepted(name, text, origin, from_text)
        sources[name] = origin
    for name, text in (overrides or {}).items():
        if name not in _SETTINGS:
            raise ConfigError(f"there is no setting `{name}`{_nearest(name, _SETTINGS)}")
        values[name] = _accepted(name, text, "the command line", from_text)
        sources[name] = "flag"
    return values, sources, document


def clusters(table: object, path: Path) -> dict[str, Cluster]:
    """The clusters in `table`, which is what stands under `clusters` in the file `path`.

    Raises:
        ConfigError: an unknown or missing key, a value that is not allowed.
    """
    return named_tables(CLUSTERS, Cluster, table, path)


def variable(name: str) -> str:
    """The environment variable of a setting: `kafka.group` -> `KCTL_KAFKA_GROUP`."""
    return "KCTL_" + name.replace(".", "_").upper()


def is_setting_variable(name: str) -> bool:
    """Whether an environment variable is a setting, or is refused because it looks like one."""
    return name.startswith(_SECTION_PREFIXES)


_SECTION_PREFIXES = tuple(f"KCTL_{section.upper()}_" for section in SECTIONS)
_SETTINGS: dict[str, Field[Any]] = {
    f"{section}.{setting.name}": setting for section, kind in SECTIONS.items() for setting in fields(kind)
}
_BY_VARIABLE = {variable(name): name for name in _SETTINGS}


def _file_values(document: Mapping[str, Any], path: Path) -> dict[str, object]:
    values: dict[str, object] = {}
    for section, table in document.items():
        if section == contexts.SECTION:
            contexts.check(table, path)  # of no use to a fleet, but a mistake in it is an error
            continue
        if section == CLUSTERS:
            clusters(table, path)
            continue
        if section not in SECTIONS:
            raise ConfigError(f"{path}: there is no section [{section}]{_nearest(section, SECTIONS)}")
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: `{section}` is a section: write [{section}] and its keys below")
        for key, value in table.items():
            name = f"{section}.{key}"
            if name not in _SETTINGS:
                raise ConfigError(f"{path}: there is no key `{key}` in [{section}]{_nearest_key(section, key)}")
            values[name] = value
    return values


def _variables(env: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The settings among the `KCTL_*` variables. A variable that begins like a section must be one of its settings."""
    found: dict[str, tuple[str, str]] = {}
    for origin, text in env.items():
        if origin in _BY_VARIABLE:
            found[_BY_VARIABLE[origin]] = (origin, text)
        elif is_setting_variable(origin):
            raise ConfigError(f"the variable {origin} is not a setting{_nearest(origin, _BY_VARIABLE)}")
    return found


def _accepted(name: str, value: Any, origin: str, convert: Callable[[Field[Any], Any], Any]) -> Any:
    setting = _SETTINGS[name]
    try:
        return convert(setting, value)
    except ValueError:
        hint = uri_hint(value) if name == "storage.uri" and isinstance(value, str) else ""
        given = "not one" if setting.metadata["is_secret"] else _given(value)
        raise ConfigError(f"{origin}: {name} is {given}, but it takes {allowed(setting)}{hint}") from None


def _given(value: object) -> str:
    """A value as TOML writes it, for scalars; shortened, and without a password."""
    text = (
        f'"{shown_url(value)}"'
        if isinstance(value, str)
        else str(value).lower()
        if isinstance(value, bool)
        else repr(value)
    )
    return text if len(text) <= 80 else f"{text[:79]}…"


def sections(path: Path, values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """These sections, each as its class, of values by `section.key`; `path` is that of the file.

    Raises:
        ConfigError: a setting is missing.
    """
    built: dict[str, Any] = {}
    for section in names:
        kind, chosen = SECTIONS[section], {}
        for setting in fields(kind):
            name = f"{section}.{setting.name}"
            if name in values:
                chosen[setting.name] = _anchored(values[name], path.parent)
            elif setting.metadata["required"]:
                raise ConfigError(_missing(path, section, setting.name))
            elif "Path" in str(setting.type):
                chosen[setting.name] = _anchored(setting.default, path.parent)
        built[section] = kind(**chosen)
    return built


def _missing(path: Path, section: str, key: str) -> str:
    if known := contexts.alone(path):
        return (
            f"{path} has no [{section}]; its contexts are {', '.join(known)}: `kctl kafka COMMAND --context {known[0]}`"
        )
    return f"{path}: {section}.{key} is missing: set `{key}` in [{section}], or {variable(f'{section}.{key}')}"


def _anchored(value: Any, folder: Path) -> Any:
    if isinstance(value, Path):
        return folder / value
    if isinstance(value, tuple):
        return tuple(_anchored(item, folder) for item in value)
    return value


def check_together(config: Config) -> None:
    """The rules that join two settings. Raises ConfigError."""
    _check_times(config)
    _check_memory(config)
    _check_storage(config)


def _check_times(config: Config) -> None:
    kafka, workers = config.kafka, config.workers
    if kafka.heartbeat_interval_seconds >= kafka.session_timeout_seconds:
        raise ConfigError(
            f"{config.path}: kafka.heartbeat_interval_seconds ({kafka.heartbeat_interval_seconds:g}) must be less than "
            f"kafka.session_timeout_seconds ({kafka.session_timeout_seconds:g})"
        )
    if workers.revoke_timeout_seconds >= kafka.max_poll_interval_seconds:
        raise ConfigError(
            f"{config.path}: workers.revoke_timeout_seconds ({workers.revoke_timeout_seconds:g}) must be less than "
            f"kafka.max_poll_interval_seconds ({kafka.max_poll_interval_seconds:g}): the worker would be taken for one "
            "that hangs while its batch ends"
        )
    if workers.backoff_min_seconds > workers.backoff_max_seconds:
        raise ConfigError(
            f"{config.path}: workers.backoff_min_seconds ({workers.backoff_min_seconds:g}) must not be more than "
            f"workers.backoff_max_seconds ({workers.backoff_max_seconds:g})"
        )


def _check_memory(config: Config) -> None:
    for name, section in (("workers", config.workers), ("engine", config.engine)):
        soft, hard = size_bytes(section.memory_soft), size_bytes(section.memory_hard)
        if soft is not None and hard is not None and soft > hard:
            raise ConfigError(
                f"{config.path}: {name}.memory_soft ({section.memory_soft}) must not be more than {name}.memory_hard "
                f"({section.memory_hard})"
            )


def _check_storage(config: Config) -> None:
    kind = config.storage.kind
    if kind.is_table:
        check_lake(config)
    elif config.storage.uri:
        raise ConfigError(
            f'{config.path}: storage.uri is set and storage.mode is "{config.storage.mode}", but only mode "lake" '
            'fills a table: write mode = "lake", or leave uri out'
        )
    if (config.sinkers.count > 0 or kind.is_handled_inside) and not config.sinkers.handler:
        why = 'storage.mode is "directly"' if kind.is_handled_inside else f"sinkers.count is {config.sinkers.count}"
        raise ConfigError(
            f"{config.path}: {why}, but sinkers.handler is empty: name the function that is given the messages, as "
            "`package.module:function`"
        )
    if config.sinkers.count > 0 and kind.is_handled_inside:
        raise ConfigError(
            f'{config.path}: storage.mode is "directly" and sinkers.count is {config.sinkers.count}, but then the '
            "workers call the handler and nothing waits for sinkers: use 0, or another mode"
        )
    if kind.is_local and not config.spark.master.startswith("local"):
        raise ConfigError(
            f'{config.path}: storage.mode is "{config.storage.mode}" and spark.master is "{config.spark.master}", but '
            "executors on other machines cannot write to a file of this one: use `local[k]`"
        )


def _nearest_key(section: str, key: str) -> str:
    own = [setting.name for setting in fields(SECTIONS[section])]
    near = _nearest(key, own)
    if near:
        return near
    elsewhere = [name for name in _SETTINGS if name.partition(".")[2] == key]
    if elsewhere:
        return f"; it belongs to [{elsewhere[0].partition('.')[0]}]"
    return f"; its keys are {', '.join(own)}"


def _nearest(word: str, known: Iterable[str]) -> str:
    import difflib  # only on the way to an error

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; the nearest is `{close[0]}`" if close else ""
