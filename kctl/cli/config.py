"""`kctl config show`, `kctl config check` and `kctl config schema`"""

from __future__ import annotations

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
from kctl.cli.user_code import problems
from kctl.config import contexts
from kctl.config.effects import shown_settings
from kctl.config.load import load
from kctl.config.sections import Config
from kctl.config.storage import storage_settings
from kctl.errors import ConfigError


def _show(config: FileOption = None, set_: SetOption = None, output: OutputOption = "table") -> None:
    """Print every setting and where it came from.

    That is: default, file, the name of a variable, or flag.
    """
    loaded = load(config_file(config), os.environ, overrides(set_))
    values = shown_settings(loaded)
    if output == "table":
        echo("\n".join(_table(loaded, values)))
    else:
        echo(as_text(values, output))


def _check(
    config: FileOption = None,
    set_: SetOption = None,
    timeout: Annotated[
        float, option("--timeout", least=0.1, metavar="SECONDS", help="How long each import may take.")
    ] = 30.0,
) -> None:
    """Check a configuration, its handler and its transform.

    Starts no fleet and asks no broker and no object store. Files of secrets are read, and the packages and
    the folder that a table needs are looked for; folders that another user could change are refused. Handler and
    transform are imported, each in a process of its own, and the transform is called with no records, in a Spark of
    that process, where there is Java. What else `kctl start` finds on its machine (Java, a port in
    use, folders that cannot be written) is not checked. Exit code 2 if the configuration or the code that it names
    cannot be used.
    """
    from kctl.start.checks import refusals  # half a second of imports

    path = config_file(config)
    if known := contexts.alone(path):
        contexts.contexts(path)
        echo(f"{path} can be used by `kctl kafka`: contexts {', '.join(sorted(known))}")
        return
    loaded = load(path, os.environ, overrides(set_))
    sentences = [*map(str, refusals(loaded)), *_table_refusals(loaded)]
    for problem in problems(loaded, timeout):
        sentences.append(problem.sentence)
        if problem.details:
            sys.stderr.write(f"{problem.details}\n\n")
    if sentences:
        raise ConfigError("\n".join(sentences))
    echo(f"{loaded.path} can be used")
    if loaded.sinkers.count == 0 and loaded.storage.kind.is_queue:
        sys.stderr.write("kctl: sinkers.count is 0: nothing takes messages out of the storage until it is full\n")


def _schema() -> None:
    """Print the JSON Schema of kctl.toml, for editors.

    They complete and check the file by it: those on taplo once it is saved beside that, whose first line is then
    `#:schema ./kctl.schema.json`.
    """
    from kctl.config.schema import json_schema

    echo(json_text(json_schema()))


def _table_refusals(config: Config) -> Iterator[str]:
    """Yields what a worker would refuse of the table, as far as it is found without writing and without its store."""
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
