"""`kctl config show`, `kctl config check` and `kctl config schema`"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from typing import Annotated, Any

from kctl.cli.command import CommandGroup, option
from kctl.cli.options import FileOption, OutputOption, SetOption, config_file, overrides
from kctl.cli.output import as_json as json_text
from kctl.cli.output import as_text, echo
from kctl.cli.signature import command
from kctl.cli.table import Column, render
from kctl.config.effects import shown_settings
from kctl.config.load import contexts, contexts_alone, load
from kctl.config.sections import Config
from kctl.config.storage import storage_settings
from kctl.errors import ConfigError


def _show(config: FileOption = None, set_: SetOption = None, output: OutputOption = "table") -> None:
    """Print every setting and where it came from: default, file, variable or flag."""
    loaded = load(config_file(config), os.environ, overrides(set_))
    values = shown_settings(loaded)
    if output == "table":
        echo("\n".join(_table(loaded, values)))
    else:
        echo(as_text(values, output))


def _check(
    config: FileOption = None,
    set_: SetOption = None,
    offline: Annotated[bool, option("--offline", help="Do not connect to brokers, for example in CI.")] = False,
    timeout: Annotated[
        float, option("--timeout", least=0.1, metavar="SECONDS", help="How long each import may take.")
    ] = 30.0,
) -> None:
    """Check a configuration, its handler and its transform.

    Makes the checks of `kctl start` without starting anything: settings, secrets, folders that another user could
    change, the handler, and whether the brokers answer and have the topics. It also looks for the packages and the
    folder that a table needs. If Java is installed, it calls the transform with no records in a Spark of its own.
    Handler and transform are each imported in a separate process.

    It does not check Java, ports in use, folders without write permission, and object stores. Exit code 2 if the
    configuration or its code cannot be used, 10 if no broker answers, 11 if a topic is missing.
    """
    from kctl.start.checks import check_brokers, refusals  # half a second of imports
    from kctl.start.user_code import check_transform

    path = config_file(config)
    if known := contexts_alone(path):
        contexts(path)
        echo(f"{path} can be used by `kctl kafka`: contexts {', '.join(sorted(known))}")
        return
    loaded = load(path, os.environ, overrides(set_))
    sentences = [*map(str, refusals(loaded, timeout)), *_table_refusals(loaded)]
    if sentences:
        raise ConfigError("\n".join(sentences))
    check_transform(loaded, timeout)
    if not offline:
        asyncio.run(check_brokers(loaded))
    echo(f"{loaded.path} can be used")
    if loaded.sinkers.count == 0 and loaded.storage.kind.is_queue:
        sys.stderr.write("kctl: sinkers.count is 0, so the storage fills up: no process takes messages out of it\n")


def _schema() -> None:
    """Print the JSON Schema of kctl.toml, for editors.

    Editors complete and check the file by it. For those based on taplo, save it next to the file and begin the file
    with `#:schema ./kctl.schema.json`.
    """
    from kctl.config.schema import json_schema

    echo(json_text(json_schema()))


def _table_refusals(config: Config) -> Iterator[str]:
    """Yields what a worker would reject about the table, as far as kctl can check it without writing and without the
    store."""
    if not config.storage.kind.is_table:
        return
    from kctl_agent.errors import StorageError
    from kctl_agent.storage.kinds import open_lake  # numpy and pyarrow: 200 ms

    try:
        open_lake(storage_settings(config)).check_folders()
    except StorageError as error:
        yield f"{config.path}: {error}"


def _table(config: Config, values: dict[str, dict[str, Any]]) -> list[str]:
    rows = [
        (f"{section}.{key}", json_text(value, in_one_line=True), config.sources[f"{section}.{key}"])
        for section, keys in values.items()
        for key, value in keys.items()
    ]
    return render((Column("setting"), Column("value"), Column("from")), rows)


COMMAND = CommandGroup(
    "config",
    "Show or check a configuration.",
    (command("show", _show), command("check", _check), command("schema", _schema)),
)
