"""Parsing for `rpc`, `status` and `kafka`, which do without Typer: a parser whose errors are ours, and values."""

from __future__ import annotations

import argparse
import math
from typing import NoReturn

from kctl.errors import UsageError

__all__ = ["Parser", "positive", "seconds"]


class Parser(argparse.ArgumentParser):
    """A parser whose errors are the command line's own. Raises UsageError instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")


def seconds(text: str) -> float:
    """Parses a number of seconds above 0.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    return _above_zero(text, "number of seconds")


def positive(text: str) -> float:
    """Parses a number above 0.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    return _above_zero(text, "number")


def _above_zero(text: str, kind: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"`{text}` is not a {kind} above 0")
    return number
