"""Finds and runs the command of a command line. Prints an error as one sentence.

Imports only the module of that command, because importing all takes longer than most commands. Uses argparse,
because the smallest command took 358 ms with Typer 0.29 instead of 64.
"""

import gc
import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kctl import __version__
from kctl.cli.command import CONFIG, Command, CommandGroup, Option, nearest, parsed
from kctl.cli.output import echo
from kctl.cli.table import clean
from kctl.errors import KctlError, UsageError
from kctl.operations import COMMANDS as OPERATIONS
from kctl.terminal import guarded
from kctl_agent.errors import AgentError

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
    Option(("--debug",), "show the traceback of an error, like KCTL_DEBUG=1", "flag"),
    Option(("--show-completion",), "print the completion script for the current shell", "flag"),
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

_QUICK = frozenset({"rpc", "status", "kafka", *OPERATIONS})
"""Commands that must be fast and have released everything when they end."""
_OF_SPARK = frozenset({"msgpack", "pandas", "pyarrow", "pyspark", "zlib_ng"})


def run_process() -> int:
    """Runs this process's command line, and returns the exit code. A command in `_QUICK` ends the process instead."""
    words = before_command(sys.argv[1:])[1]
    is_quick = not _QUICK.isdisjoint(words[:1])
    if is_quick:
        gc.set_threshold(100_000)  # Python's default of 700 takes a twentieth of the time of `kctl kafka lag`
        if not any(word.startswith(("-b", "--b")) for word in words):  # with -b `kctl kafka` reads no configuration
            _import_msgspec()
    code = run()
    if is_quick:
        _leave(code)
    return code


def _import_msgspec() -> None:
    # msgspec does not need typing_extensions, whose import takes 4 % of the time of `kctl rpc`.
    if "typing_extensions" not in sys.modules:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # makes its import fail
        importlib.import_module("msgspec")
        del sys.modules["typing_extensions"]


@guarded()
def run(arguments: Sequence[str] | None = None, env: Mapping[str, str] = os.environ) -> int:
    """Runs a command line, by default this process's, and returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(words, env)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python's flush at exit must not fail again on what is still buffered.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as a process that ended by SIGPIPE (13)
    except KeyboardInterrupt:
        return 130  # as after SIGINT in a shell
    except Exception as error:
        if "--debug" in before_command(words)[0] or env.get("KCTL_DEBUG") == "1":
            import traceback  # 3 ms

            traceback.print_exc()
        return _print_error(error)
    return code


def before_command(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    options: dict[str, str] = {}
    left = list(words)
    while left and left[0].startswith("-"):
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if name in ("-c", "--config"):
            options["--config"] = value if equals else left.pop(0) if left else ""
        elif word.startswith("-c"):
            options["--config"] = word[2:]
        else:
            options[word] = ""
    return options, left


def _leave(code: int) -> None:
    try:
        sys.stdout.flush()
    except OSError:
        return  # Python reports it at exit
    sys.stderr.flush()
    os._exit(code)  # the teardown of modules takes a tenth of the time of `kctl kafka lag`


def _run(words: list[str], env: Mapping[str, str]) -> int:
    options, rest = before_command(words)
    if "--version" in options:
        echo(f"kctl {__version__}")
        return 0
    if shell := env.get("_KCTL_COMPLETE"):
        from kctl.cli.completion import complete

        sys.stdout.writelines(f"{each}\n" for each in complete(tree(), words, shell))
        return 0
    return _dispatched(options, rest, env)


def _print_error(error: Exception) -> int:
    if isinstance(error, KctlError):
        code, text = error.exit_code, str(error)
    elif isinstance(error, AgentError):
        code, text = 2 if error.code == "storage_misconfigured" else 1, str(error)
    elif isinstance(error, ModuleNotFoundError) and error.name in _OF_SPARK:
        code, text = 2, f"this needs the package {error.name}, which is not installed: pip install 'kctl[spark]'"
    else:
        code, text = 1, f"a defect in kctl, {type(error).__name__}: {error}; `kctl --debug …` shows where"
    sys.stdout.flush()
    sys.stderr.write(f"kctl: {text}\n")
    return code


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


def _dispatched(options: Mapping[str, str], words: Sequence[str], env: Mapping[str, str]) -> int:
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
    module = importlib.import_module(f"kctl.cli.{path}")
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
