"""The help text of each setting: the string below its field in the source, where Sphinx and pydantic read it too."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise

from kctl.config.forms import Section


def help_texts(kind: type[Section]) -> dict[str, str]:
    """Returns the help texts of a section's settings by name, each on one line."""
    found: dict[str, str] = {}
    for base in kind.__mro__[:-1]:
        (declared,) = ast.parse(inspect.getsource(base)).body
        assert isinstance(declared, ast.ClassDef)
        for field, below in pairwise(declared.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value=ast.Constant(str(text))):
                    found[name] = " ".join(text.split())
    return found
