"""What a command is: a name, a pure answer, and what `describe` shows of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from kctl_agent.errors import BadParams
from kctl_agent.replies.describe import Param
from kctl_agent.rpc.messages import is_plain_number, printable_name, wire_method
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import JsonObject

__all__ = ["Answer", "Command", "check_params"]

Answer: TypeAlias = Callable[[Snapshot, JsonObject, float], JsonObject]
"""(snapshot, checked params, now by `time.monotonic()`) -> result. It runs on the agent's thread and must not wait."""

_PYTHON_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
}


@dataclass(frozen=True, slots=True)
class Command:
    """One entry of the table. `changes`: it is no question but an operation. Without `needs_snapshot` it answers
    before the first one."""

    name: str
    answer: Answer
    summary: str
    params: tuple[Param, ...] = ()
    changes: bool = False
    deadline_ms: int = 2000
    needs_snapshot: bool = True

    @property
    def method(self) -> str:
        """Its name on the wire: `kafka_lag` -> `getKafkaLag`."""
        return wire_method(self.name)


def check_params(command: Command, params: JsonObject) -> None:
    """Refuse what the command does not take.

    Raises:
        BadParams: a parameter is unknown, missing, or of another type; the message names it.
    """
    known = {param.name: param for param in command.params}
    for name, value in params.items():
        param = known.get(name)
        if param is None:
            takes = ", ".join(known) or "no parameters"
            raise BadParams(f'{command.name} has no parameter "{printable_name(name)}"; it takes {takes}')
        if type(value) not in _PYTHON_TYPES[param.type]:
            raise BadParams(f'{command.name}: parameter "{param.name}" must be of type {param.type}')
        if not is_plain_number(value):
            raise BadParams(f'{command.name}: parameter "{param.name}" must be a finite number of 64 bits')
    for param in command.params:
        if param.required and param.name not in params:
            raise BadParams(f'{command.name}: parameter "{param.name}" is missing')
