"""The errors of docs/errors.md, from their classes."""

import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator
from typing import Any

import kctl
import kctl_agent
from kctl.errors import KctlError
from kctl_agent.errors import AgentError

_CONTROL_PLANE = "| code | exit | HTTP | retriable | what happened, and what to do |\n|---|---|---|---|---|\n"
_AGENTS = "| code | retriable | what happened |\n|---|---|---|\n"


def tables() -> list[str]:
    own = [_row(kind, str(kind.exit_code), str(kind.http_status)) for kind in errors_of(KctlError)]
    return ["".join([_CONTROL_PLANE, *own]), "".join([_AGENTS, *map(_row, errors_of(AgentError))])]


def errors_of(root: type[Any]) -> list[type[Any]]:
    for package in (kctl, kctl_agent):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    return sorted(_below([root]), key=lambda kind: str(kind.code))


def _below(kinds: Iterable[type[Any]]) -> Iterator[type[Any]]:
    for kind in kinds:
        if kind.__module__.startswith(("kctl.", "kctl_agent.")):
            yield kind
            yield from _below(kind.__subclasses__())


def _row(kind: type[Any], *numbers: str) -> str:
    what = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
    linked = re.sub(r"\bdocs/([\w-]+)\.md", r"[\1](\1.md)", what)
    return f"| {' | '.join([f'`{kind.code}`', *numbers, 'yes' if kind.retriable else 'no', linked])} |\n"
