"""Parameters of commands and operations, declared once as fields of a frozen dataclass."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import MISSING, Field, field, fields
from typing import Any, Final

from kctl_agent.errors import BadParams
from kctl_agent.replies.describe import Param
from kctl_agent.rpc.messages import is_plain_number, printable_name
from kctl_agent.rpc.wire import JsonObject

_PYTHON_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
}
_NAMES: Final = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array"}


def param(summary: str, *, default: Any = MISSING, **facts: Any) -> Any:
    """Declares a parameter. Without `default`, it is required. `facts`: bounds (`least`, `most`) and CLI options."""
    return field(default=default, metadata={"summary": summary, **facts})


def listed(kind: type) -> tuple[Param, ...]:
    return tuple(
        Param(each.name, _type_name(each), each.metadata["summary"], each.default is MISSING) for each in fields(kind)
    )


def check_params(name: str, known: Iterable[Param], params: JsonObject) -> None:
    by_name = {param.name: param for param in known}
    for key, value in params.items():
        param = by_name.get(key)
        if param is None:
            takes = ", ".join(by_name) or "no parameters"
            raise BadParams(f'{name} has no parameter "{printable_name(key)}"; it takes {takes}')
        if type(value) not in _PYTHON_TYPES[param.type]:
            raise BadParams(f'{name}: parameter "{param.name}" must be of type {param.type}')
        if not is_plain_number(value):
            raise BadParams(f'{name}: parameter "{param.name}" must be a finite number of 64 bits')
    for param in by_name.values():
        if param.required and param.name not in params:
            raise BadParams(f'{name}: parameter "{param.name}" is missing')


def check_bounds(name: str, kind: type, params: JsonObject) -> None:
    for each in fields(kind):
        least, most = each.metadata.get("least", -math.inf), each.metadata.get("most", math.inf)
        if each.name in params and (least > -math.inf or most < math.inf) and not least <= params[each.name] <= most:
            bounds = f"{least} or more" if most == math.inf else f"from {least} to {most}"
            raise BadParams(f'{name}: parameter "{each.name}" must be {bounds}')


def _type_name(of: Field[Any]) -> str:
    return _NAMES[str(of.type).split()[0].partition("[")[0]]
