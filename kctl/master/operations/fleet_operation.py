"""The base class of operations on a fleet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, dataclass_transform

from kctl.fields import host_and_name
from kctl_agent.errors import BadParams
from kctl_agent.replies.describe import Param
from kctl_agent.rpc.params import check_bounds, check_params, listed
from kctl_agent.rpc.wire import JsonObject

if TYPE_CHECKING:
    from kctl.master.operations.base import Caller as Caller
    from kctl.master.operations.base import Report as Report
    from kctl.master.operations.context import Context as Context
else:  # takes half a second, which the command line does not need
    Caller = Context = Report = object

SHORT_SECONDS = 30.0
BATCH_SECONDS = 120.0
LONG_SECONDS = 600.0

ALL_HOSTS: Final = "all"
_FOR_EVERY: Final = (
    Param("deadline_seconds", "number", "give up after this time"),
    Param("host", "string", "the host that runs the operation, or `all` in turn"),
)
Done: TypeAlias = tuple[str, JsonObject]
OnOne: TypeAlias = Callable[[str, JsonObject], Awaitable[Done]]


def described(kind: type[FleetOperation]) -> JsonObject:
    summary = (kind.__doc__ or "").partition("\n")[0]
    params = [asdict(each) for each in listed(kind)]
    return {"rpc": kind.rpc, "summary": summary, "params": params, "changes": kind.changes}


def with_host(params: JsonObject) -> JsonObject:
    """Replaces `HOST/NAME` by `NAME`, and sets the parameter `host`. Raises BadParams if the hosts differ."""
    names = {key: value.split(",") for key in ("name", "worker") if isinstance(value := params.get(key), str)}
    found = {host_and_name(each)[0] for value in names.values() for each in value}
    if not any(found):
        return params
    hosts = found | {params.get("host", max(found))}
    if len(hosts) > 1:
        raise BadParams("name only processes of one host")
    own = {key: ",".join(host_and_name(each)[1] for each in value) for key, value in names.items()}
    return {**params, **own, "host": hosts.pop()}


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class FleetOperation:
    """The base of operations. A subclass's fields are the parameters, and its docstring is the help text. If `is_long`
    is true, a request does not wait until the operation ends. If `changes` is false, the operation only reads."""

    rpc: ClassVar[str]
    is_long: ClassVar[bool] = False
    changes: ClassVar[bool] = True
    for_all_hosts: ClassVar[bool] = False
    shared_by_hosts: ClassVar[str] = ""
    """A parameter that names what all hosts share: if it is given without a host, all hosts are meant."""
    limit_seconds: ClassVar[float] = SHORT_SECONDS  # the deadline, unless the caller sets one

    def __init_subclass__(cls, **declared: str | bool | float) -> None:
        """Makes each operation a frozen dataclass. Keyword arguments of the class statement set class variables."""
        for name, value in declared.items():
            assert name in FleetOperation.__annotations__, name
            setattr(cls, name, value)
        dataclass(frozen=True)(cls)

    @classmethod
    def given(cls, params: JsonObject) -> FleetOperation:
        """Checks `params`, including `deadline_seconds` and `host`. Returns the operation. Raises BadParams."""
        check_params(cls.rpc, (*listed(cls), *_FOR_EVERY), params)
        if params.get("deadline_seconds", 1) <= 0:
            raise BadParams(f"{cls.rpc}: deadline_seconds must be above 0")
        check_bounds(cls.rpc, cls, params)
        found = cls(**{name: value for name, value in params.items() if name not in ("deadline_seconds", "host")})
        if (problem := found.problem()) is not None:
            raise BadParams(problem)
        return found

    async def shared(self, context: Context, params: JsonObject, _on_one: OnOne) -> dict[str, JsonObject]:
        """For an operation on all hosts, returns host -> parameters, in the order of execution. Raises KctlError."""
        assert context.hosts is not None
        return dict.fromkeys(context.hosts.names, params)

    def joined(self, results: dict[str, JsonObject]) -> JsonObject:
        return {"hosts": results}

    def deadline_seconds(self, context: Context) -> float:  # noqa: ARG002 - for those that depend on the settings
        return self.limit_seconds

    def problem(self, mark: str = "") -> str | None:  # noqa: ARG002 - for those that name parameters
        """Returns what is wrong with the parameters, or None. `mark`, such as `--`, precedes the parameters' names."""
        return None

    def touches(self, context: Context) -> frozenset[str]:
        """Returns what no other operation may touch until this one ends: process names, `reading` (pauses and offsets),
        or `scale`. Raises BadParams."""
        raise NotImplementedError

    async def carry_out(self, context: Context, caller: Caller, report: Report) -> Done:
        """Executes the operation. If cancelled, reverts what can be reverted."""
        raise NotImplementedError
