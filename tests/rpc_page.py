"""The questions and operations of docs/rpc.md, from their tables."""

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from itertools import pairwise
from textwrap import dedent, fill
from typing import Any, cast, get_args, get_origin, get_type_hints

from kctl.cli.command import CONFIG, OUTPUT, Option
from kctl.cli.fleet.operate import command as command_of
from kctl.cli.fleet.tables import VIEWS
from kctl.operations import COMMANDS, operation
from kctl_agent.replies.questions import QUESTIONS, Question, named
from tests.configuration_page import entry

_OPERATIONS = """
## Operations

Each operation is a method of the master (`onPause`). HTTP accepts operations at `POST /api/v1/operations`.
`kctl start NAME` and `kctl stop NAME` are operations too. [commands.md](commands.md#operations) describes what all
operations have in common.

All operations below have two more options:

"""
_IN_ALL = ("--host", "--deadline")
_WITHOUT_SAMPLE = " Absent without a limit."  # of a metric; a reply has the limit 0


def reference() -> str:
    questions = [_question(name, each) for name, each in QUESTIONS.items()]
    known: dict[str, str] = {}
    done = [_operation(name, shown, known) for shown, name in COMMANDS.items()]
    return "".join([*questions, _OPERATIONS, *_common(), "\nThe operations, with their own options:\n\n", *done])


def _common() -> Iterator[str]:
    kinds = {shown: operation(name) for shown, name in COMMANDS.items()}
    on_one = _listed(shown for shown, kind in kinds.items() if not kind.for_all_hosts)
    host = f"run it on this host of the fleet. `--host all`: on all hosts in turn (not for {on_one})."
    yield f"{entry(f'`--host NAME`: {host}')}\n"
    by_limit: dict[float, list[str]] = {}
    for shown, kind in kinds.items():
        by_limit.setdefault(kind.limit_seconds, []).append(shown)
    limits = "; ".join(f"{seconds:g} for {_listed(shown)}" for seconds, shown in sorted(by_limit.items()))
    yield f"{entry(f'`--deadline SECONDS`: give up after this time. Default: {limits}.')}\n"


def _listed(names: Iterable[str]) -> str:
    *most, last = (f"`{each}`" for each in names)
    return f"{', '.join(most)} and {last}" if most else last


def _question(name: str, question: Question) -> str:
    kind = named(question.sent)
    first, *others = (f"{each}s" for each in question.kinds)
    assert first == "workers", "docs/rpc.md: workers answer all questions"
    facts = [f"Also answered by {' and '.join(others)}."] if others else []
    if question.path:
        facts.append(f"Over HTTP: `/api/v1/{question.path}`.")
    if name in VIEWS and VIEWS[name].compared:
        facts.append(f"`--fail-above` compares {VIEWS[name].compared}.")
    doc = "" if kind.__doc__ is None else " ".join(inspect.cleandoc(kind.__doc__).split()).replace("None", "null")
    about = " ".join([f"{question.title}.", *([doc] if doc else []), *facts])
    described = entry(about)[2:].replace("\n  ", "\n")
    return "\n".join([f"\n### `{name}`\n", f"{described}\n", *_fields(kind), ""])


def _fields(kind: Any, path: str = "", above: tuple[Any, ...] = ()) -> Iterator[str]:
    texts, hints = _texts(kind), get_type_hints(kind)
    found = {name: _inner(hints[name]) for name in _names(kind)}
    if plain := [name for name, (inner, _) in found.items() if inner is None and name not in texts]:
        yield entry(", ".join(f"`{path}{name}`" if name == plain[0] else f"`{name}`" for name in plain))
    for name, (inner, is_list) in found.items():
        whole = f"{path}{name}{'[]' if is_list else ''}"
        if name in texts:
            yield entry(f"`{whole}`: {texts[name].replace('None', 'null')}")
        if inner is not None and inner not in above:
            yield from _fields(inner, f"{whole}.", (*above, kind))


def _names(kind: Any) -> list[str]:
    return [each.name for each in fields(kind)] if is_dataclass(kind) else list(kind.__struct_fields__)


def _inner(hint: Any) -> tuple[Any, bool]:
    """The type of ours in a field, if any, and whether the field has several."""
    if isinstance(hint, type) and (is_dataclass(hint) or hasattr(hint, "__struct_fields__")):
        return hint, False
    is_list = get_origin(hint) in (tuple, list)
    found = [_inner(each) for each in get_args(hint) if get_origin(hint) is not Mapping]
    inner = next((each for each, _ in found if each is not None), None)
    return inner, is_list or any(each for _, each in found)


def _texts(kind: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("kctl"):
            continue
        (declared,) = ast.parse(dedent(inspect.getsource(base))).body
        for field, below in pairwise(cast(ast.ClassDef, declared).body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value=ast.Constant(str(text))):
                    found[name] = " ".join(text.split())
    declared_fields: tuple[Field[Any], ...] = fields(kind) if is_dataclass(kind) else ()
    described = {each.name: each.metadata["metric"] for each in declared_fields if "metric" in each.metadata}
    metrics = {name: metric.sentence.removesuffix(_WITHOUT_SAMPLE) for name, metric in described.items()}
    return {name: text for name, text in metrics.items() if text} | found


def _operation(name: str, shown: str, known: dict[str, str]) -> str:
    """`known` has the commands by the text of their options, which no command repeats."""
    command = command_of(name)
    about = entry(" ".join(f"**`kctl {shown}`**: {command.summary} {command.details}".split()))
    own = (each for each in command.options if each not in (CONFIG, OUTPUT) and not {*each.names} & {*_IN_ALL})
    if not (options := "\n".join(map(_option, own))):
        return f"{about}\n"
    first = known.setdefault(options, shown)
    return f"{about}\n{options}\n" if first == shown else f"{about}\n  The options are those of `kctl {first}`.\n"


def _option(option: Option) -> str:
    name = max(option.names, key=len)
    text = f"- `{f'{name} {option.metavar}' if option.metavar else name}`: {option.help}."
    return fill(
        text, 118, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
