"""The tree of commands. Each is imported only when used, because importing all takes longer than most commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from kctl.cli.command import CONFIG, Command, CommandGroup, Option, nearest, parsed
from kctl.cli.output import echo
from kctl.cli.table import clean
from kctl.errors import UsageError
from kctl.operations import COMMANDS as OPERATIONS

_MODULES = {
    "start": "fleet.start",
    "stop": "fleet.stop",
    "status": "fleet.status",
    "top": "fleet.top",
    "hosts": "fleet.hosts",
    "advise": "fleet.advise",
    "logs": "fleet.logs",
    "rpc": "fleet.rpc",
    **dict.fromkeys(OPERATIONS, "fleet.operate"),
    "operation": "fleet.operations:OPERATION",
    "operations": "fleet.operations",
    "storage": "storage.commands",
    "kafka": "kafka.commands",
    "checkpoint": "checkpoint.commands",
    "exporter": "exporter",
    "groups": "groups.groups",
    "group": "groups.groups:GROUP",
    "demo": "demo",
    "config": "config",
    "jars": "jars",
}
"""In the order of the help page: the module under kctl.cli, and the name of the command there, by default COMMAND."""
COMMANDS = tuple(_MODULES)

_OPTIONS = (
    CONFIG,
    Option(("--version",), "print the version of kctl", "flag"),
    Option(("--debug",), "show the traceback of an error; KCTL_DEBUG=1 too", "flag"),
    Option(("--show-completion",), "print what completes kctl in the current shell", "flag"),
)
_EXAMPLES = """\
kctl demo                  see everything at work
kctl start -c kctl.toml    run a fleet
kctl rpc kafka_lag         ask it"""
_EXIT_CODES = """\
Exit codes: 0 ok, 1 failed, 2 wrong usage or configuration, 3 incomplete answer, 4 above --fail-above, 5 no master,
130 interrupted. A fleet cannot start: 10 broker unreachable, 11 topic missing, 12 no suitable Java, 13 port taken,
14 run_dir unusable, 15 already running, 16 jars missing. A broker answers with an error: 17 authentication failed,
18 not authorised, 19 no such group, 20 no such partition, 21 message too large, 22 not enough replicas,
23 wrong protocol, 24 group has members. A Spark checkpoint: 25 cannot be read, 26 cannot be used.
"""


def tree() -> CommandGroup:
    commands = tuple(_found(name) for name in COMMANDS)
    return CommandGroup(
        "kctl",
        "Run and watch a fleet of Spark workers that read Kafka.",
        commands,
        _EXIT_CODES,
        _OPTIONS,
        examples=_EXAMPLES,
    )


def run(options: Mapping[str, str], words: Sequence[str], env: Mapping[str, str]) -> int:
    """`options` precede the command. Raises KctlError, AgentError."""
    known = {name for option in _OPTIONS for name in option.names} | {"-h", "--help"}
    if unknown := [option for option in options if option not in known]:
        raise UsageError(f"kctl does not accept {clean(unknown[0])} before a command; see `kctl --help`")
    if options.get("--config") == "":
        raise UsageError("-c takes a FILE; see `kctl --help`")
    if "--show-completion" in options:
        return _completion(words, env)
    if words[:1] == ["help"] or not options.keys().isdisjoint(("-h", "--help")):
        return _show(tree(), "kctl", is_asked=True)
    if not words:
        return _show(tree(), "kctl", is_asked=options.keys().isdisjoint(("--config", "--debug")))
    node, path, rest = _walked(words)
    own = rest[: rest.index("--")] if "--" in rest else rest
    if isinstance(node, CommandGroup) or not {"-h", "--help"}.isdisjoint(own):
        return _show(node, path, is_asked=not {"-h", "--help"}.isdisjoint(own))
    return _carried_out(node, path, rest, options.get("--config"), env)


def _carried_out(node: Command, path: str, words: Sequence[str], config: str | None, env: Mapping[str, str]) -> int:
    given = [*words] if config is None else ["--config", config, *words]
    takes_config = any("--config" in option.names for option in node.options)
    if takes_config and words and words[0].endswith(".toml") and Path(words[0]).is_file():
        raise UsageError(f"{path} does not accept {clean(words[0])}: did you mean -c {clean(words[0])}?")
    options = parsed(node, given if takes_config else words, path)
    if node.run is None:
        raise NotImplementedError(path)
    return node.run(options, env) or 0


def _show(node: Command | CommandGroup, path: str, *, is_asked: bool) -> int:
    """If a command is missing, prints on stderr, with exit code 2."""
    from kctl.cli.help import page  # with shutil and textwrap, 5 ms

    echo(page(node, path), is_error=not is_asked)
    return 0 if is_asked else 2


def _walked(words: Sequence[str]) -> tuple[Command | CommandGroup, str, Sequence[str]]:
    name, *rest = words
    if name not in _MODULES:
        raise _unknown(name)
    node, path = _found(name), f"kctl {name}"
    while isinstance(node, CommandGroup) and rest and not rest[0].startswith("-"):
        found = {each.name: each for each in node.commands}
        if rest[0] not in found:
            raise UsageError(f"there is no command `{path} {clean(rest[0])}`; {nearest(rest[0], found)}")
        node, path, rest = found[rest[0]], f"{path} {rest[0]}", rest[1:]
    return node, path, rest


def _found(name: str) -> Command | CommandGroup:
    path, _, attribute = _MODULES[name].partition(":")
    module = import_module(f"kctl.cli.{path}")
    found: Command | CommandGroup = (
        module.command(OPERATIONS[name]) if name in OPERATIONS else getattr(module, attribute or "COMMAND")
    )
    return found


def _unknown(name: str) -> UsageError:
    from kctl_agent.replies.questions import QUESTIONS

    places = [*_places(tree(), "kctl"), *(f"kctl rpc {each}" for each in QUESTIONS), "kctl --version"]
    found = " or ".join(f"`{place}`" for place in places if place.rpartition(" ")[2].removeprefix("--") == name)
    return UsageError(
        f"there is no command `kctl {clean(name)}`; {f'it is {found}' if found else nearest(name, COMMANDS)}"
    )


def _places(group: CommandGroup, path: str) -> Iterator[str]:
    for each in group.commands:
        yield f"{path} {each.name}"
        if isinstance(each, CommandGroup):
            yield from _places(each, f"{path} {each.name}")


def _completion(words: Sequence[str], env: Mapping[str, str]) -> int:
    from kctl.cli import completion

    if words:
        raise UsageError(f"--show-completion does not accept `{clean(words[0])}`: it is for the shell that runs kctl")
    echo(completion.script(env))
    return 0
