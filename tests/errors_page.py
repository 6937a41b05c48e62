"""docs/errors.md from the classes of errors: `python -m tests.errors_page > docs/errors.md`."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import kctl
import kctl_agent
from kctl.errors import KctlError
from kctl_agent.errors import AgentError

_HEAD = """\
# Errors and exit codes

<!-- Written by `python -m tests.errors_page > docs/errors.md`; each row of the codes is the docstring of a class. -->

Every error has one sentence for people and one code for programs. The CLI prints `kctl: <sentence>` on stderr and exits
with the code below; `kctl --debug …` or `KCTL_DEBUG=1` adds the traceback. On the wire an error is
`{"code","message","retriable"}`, over HTTP the same under `error`. *Retriable* means that the same request may succeed
later.

## Exit codes

| exit code | meaning |
|---|---|
"""
_EXIT_CODES = {
    "0": "ok; also `--watch` ended by Ctrl-C",
    "1": "failed, for the reason in the sentence; `kctl status` if the fleet is not healthy; a master that was stopped "
    "twice and has killed workers",
    "2": "wrong usage or configuration; or an unknown worker, sinker, operation or topic: the sentence lists the known "
    "ones",
    "3": "[incomplete](commands.md#kctl-rpc-command): something is missing, old or unknown, and the rest has been "
    "printed; or an operation may still happen",
    "4": "above `--fail-above` (takes precedence over 3)",
    "5": "no master can be asked: no socket file, no listener, or not permitted",
    "10 … 16": "a fleet cannot start, see below",
    "17 … 24": "`kctl kafka`: a broker answered with an error, see below",
    "25, 26": "`kctl checkpoint`: a Spark checkpoint cannot be read, or its offsets cannot be used",
    "78": "(a worker process) it cannot start with its configuration, or another member has joined with its "
    "`group.instance.id`; kctl does not restart it",
    "130": "interrupted by Ctrl-C",
    "141": "the reader of the output has closed it, as in `kctl rpc offset_checker \\| head -1`",
}
_CONTROL_PLANE = """
## Errors of the control plane (`kctl.errors`)

| code | exit | HTTP | retriable | what happened, and what to do |
|---|---|---|---|---|
"""
_AGENTS = """
## Errors of agents and of the wire (`kctl_agent.errors`)

They appear in replies, and in `failed` of an incomplete answer as the reason of one worker. If the CLI itself raises
one, it exits with 1.

| code | retriable | what happened |
|---|---|---|
"""
_TAIL = """
`failed` can have four more codes. Over HTTP there are [some more](http.md#errors).

| code | from | meaning |
|---|---|---|
"""
_FAILED = (
    "| `bad_result` | an agent | its reply does not fit the command; the message names the field (another release?) |",
    "| `stopped` | an agent | you asked for it by name, and it was stopped on request |",
    "| `stale` | an agent, `storage` | nothing was published, or the storage was not counted, for 5 s |",
    "| `stale` | `brokers` | their offsets are older than three collect intervals (at least 5 s) |",
    "| `unknown` | `brokers` | the lag of partitions is not known |",
)


def reference() -> str:
    own = [_row(kind, str(kind.exit_code), str(kind.http_status)) for kind in errors_of(KctlError)]
    codes = [f"| {code} | {meaning} |\n" for code, meaning in _EXIT_CODES.items()]
    agents = [_row(kind) for kind in errors_of(AgentError)]
    return "".join([_HEAD, *codes, _CONTROL_PLANE, *own, _AGENTS, *agents, _TAIL, *(f"{row}\n" for row in _FAILED)])


def errors_of(root: type[Any]) -> list[type[Any]]:
    """All error classes below `root` and itself, by code."""
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


if __name__ == "__main__":
    sys.stdout.write(reference())
