"""The Typer application: all commands but `rpc`, which it only lists and completes. One module per command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from kctl.cli.options import ConfigOption
from kctl.cli.table import clean
from kctl.errors import UsageError

__all__ = ["COMMANDS", "build", "run"]

_MODULES = {
    "start": "fleet.start",
    "stop": "fleet.stop",
    "status": "fleet.status_completion",
    "top": "fleet.top",
    "logs": "fleet.logs",
    "rpc": "fleet.rpc_completion",
    "pause": "fleet.pause",
    "resume": "fleet.resume",
    "seek": "fleet.seek",
    "restart": "fleet.restart",
    "drain": "fleet.drain",
    "scale": "fleet.scale",
    "reload": "fleet.reload",
    "log-level": "fleet.log_level",
    "stack": "fleet.stack",
    "operation": "fleet.operation",
    "operations": "fleet.operations",
    "storage": "storage.commands",
    "kafka": "kafka.completion",
    "exporter": "exporter",
    "groups": "groups.groups",
    "group": "groups.group",
    "demo": "demo",
    "config": "config",
    "jars": "jars",
    "version": "version",
}
"""Commands with their modules under kctl.cli, in the order of the help page; each has `register(app)`. It is imported
when its command is run: all of them together take longer than most commands."""
COMMANDS = tuple(_MODULES)

_EXIT_CODES = """\
Exit codes: 0 ok, 1 failed, 2 wrong usage or configuration, 3 incomplete answer, 4 above --fail-above, 5 no master,
130 interrupted. A fleet cannot start: 10 broker unreachable, 11 topic missing, 12 no suitable Java, 13 port taken,
14 run_dir unusable, 15 already running, 16 jars missing. A broker refuses: 17 authentication failed,
18 not authorised, 19 no such group, 20 no such partition, 21 message too large, 22 not enough replicas,
23 wrong protocol, 24 group has members.
"""


def build(commands: Sequence[str] = COMMANDS) -> typer.Typer:
    """Builds the application with these commands; only with all of them does it install shell completion."""
    app = typer.Typer(
        name="kctl",
        no_args_is_help=True,
        add_completion=len(commands) > 1,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    app.callback(epilog=_EXIT_CODES)(_root)
    for command in commands:
        import_module(f"kctl.cli.{_MODULES[command]}").register(app)
    return app


def run(words: list[str], command: str | None, env: Mapping[str, str]) -> int:
    """Runs a command line whose command is `command`; others are not even imported.

    Raises:
        KctlError, AgentError: with the exit code of each; UsageError for what Typer refuses.
    """
    if command is not None and command not in COMMANDS and "_KCTL_COMPLETE" not in env:
        _check_place(command, words)
    app = build((command,) if command in COMMANDS and "_KCTL_COMPLETE" not in env else COMMANDS)
    if "_KCTL_COMPLETE" in env:
        app(args=words, prog_name="kctl")
    try:
        # Not `app(words)`: Typer itself would end the process on a broken pipe and on Ctrl-C, and print errors its way.
        root = typer.main.get_command(app)
        with root.make_context("kctl", list(words)) as context:
            outcome = root.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except typer.TyperException as error:
        where = getattr(error, "ctx", None)
        if where is not None and error.format_message() == where.get_help():  # a group without a command
            typer.echo(error.format_message(), err=bool(words))
            return 2 if words else 0
        if error.exit_code != 2:
            typer.echo(error.format_message())
            return error.exit_code
        page = "kctl" if where is None else where.command_path
        text = error.format_message().rstrip(".").replace("Value error, ", "")  # pydantic's
        raise UsageError(f"{text}{' See' if text.endswith('?') else '; see'} `{page} --help`") from None
    return outcome if isinstance(outcome, int) else 0


def _check_place(command: str, words: list[str]) -> None:
    """Refuses words that mean something at another place of a command line. Raises UsageError for a word that is a
    command elsewhere, or a shell behind an option that takes none."""
    for option in ("--install-completion", "--show-completion"):
        if option in words:
            raise UsageError(f"{option} takes no `{clean(command)}`: it is for the shell that kctl is called from")
    from kctl.cli.fleet.tables import TABLES

    places = [*_places(typer.main.get_command(build()), "kctl"), *(f"kctl rpc {name}" for name in TABLES)]
    found = [place for place in places if place.rpartition(" ")[2] == command]
    if found:
        listed = " or ".join(f"`{place}`" for place in found)
        raise UsageError(f"there is no command `kctl {command}`; it is {listed}")


def _places(group: Any, path: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _places(command, f"{path} {name}")
        else:
            yield f"{path} {name}"


def _root(
    context: typer.Context,
    config: ConfigOption = None,
    _version: Annotated[bool, typer.Option("--version", help="Print the version of kctl.")] = False,
    _debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; KCTL_DEBUG=1 too.")] = False,
) -> None:
    """Run and watch a fleet of Spark workers that read Kafka.

    \b
    kctl demo                          see all of it at work
    kctl start -c kctl.toml            run a fleet
    kctl rpc kafka_lag                 ask it
    """
    context.obj = config
