"""The help page of a command or group."""

import shutil
import textwrap
from collections.abc import Iterable, Iterator

from kctl.cli.command import Command, CommandGroup, Option

HELP = Option(("-h", "--help"), "show this message and exit", "flag")
_WIDEST_NAME = 32


def page(node: Command | CommandGroup, path: str) -> str:
    """Returns the help page of a command, as wide as the terminal, up to 120 columns."""
    width = min(shutil.get_terminal_size().columns, 120)
    arguments = [each for each in node.options if each.is_argument]
    options = [each for each in node.options if not each.is_argument]
    usage = " ".join([f"Usage: {path} [OPTIONS]", *_usage(node, arguments)])
    lines = [usage, "", *_text(node.summary, width), *_text(node.details, width)]
    lines += [textwrap.indent(f"{node.examples}\n", "  ")] if node.examples else []
    lines += _table("Arguments", ((each.names[0], _meaning(each)) for each in arguments), width)
    lines += _table("Options", ((_spelled(each), _meaning(each)) for each in [*options, HELP]), width)
    if isinstance(node, CommandGroup):
        lines += _table("Commands", ((each.name, _sentence(each.summary)) for each in node.commands), width)
    return "\n".join([*lines, *_text(node.epilog, width)]).rstrip()


def _usage(node: Command | CommandGroup, arguments: Iterable[Option]) -> Iterator[str]:
    for each in arguments:
        word = each.names[0] + ("..." if each.kind == "words" else "")
        yield word if each.is_required else f"[{word}]"
    if isinstance(node, CommandGroup):
        yield "COMMAND ..."


def _text(text: str, width: int) -> Iterator[str]:
    for paragraph in filter(None, text.split("\n\n")):
        if paragraph.startswith(" "):
            yield from paragraph.splitlines()
        else:
            yield from textwrap.wrap(paragraph, width, initial_indent="  ", subsequent_indent="  ")
        yield ""


def _spelled(option: Option) -> str:
    names = ", ".join(sorted(option.names, key=len))
    value = "" if option.kind == "flag" else option.metavar or "|".join(option.choices) or option.key.upper()
    return f"{names} {value}".rstrip()


def _meaning(option: Option) -> str:
    text = f"{option.help[0].upper()}{option.help[1:].removesuffix('.')}."
    if option.is_required and not option.is_argument:
        return f"{text}  [required]"
    has_default = option.kind != "flag" and option.default not in (None, "")
    return f"{text}  [default: {option.default}]" if has_default else text


def _sentence(text: str) -> str:
    return f"{text.partition('. ')[0].removesuffix('.')}."


def _table(title: str, rows: Iterable[tuple[str, str]], width: int) -> Iterator[str]:
    found = list(rows)
    if not found:
        return
    column = max((len(name) for name, _ in found if len(name) <= _WIDEST_NAME), default=0)
    yield f"{title}:"
    for name, text in found:
        first, *more = textwrap.wrap(text, width - column - 4) or [""]
        if len(name) > column:
            yield f"  {name}"
            yield f"{'':{column}}    {first}"
        else:
            yield f"  {name:<{column}}  {first}".rstrip()
        yield from (f"{'':{column}}    {line}" for line in more)
    yield ""
