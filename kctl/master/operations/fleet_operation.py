"""What every operation on a fleet declares."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from kctl.fields import host_and_name
from kctl_agent.errors import BadParams
from kctl_agent.replies.describe import Param
from kctl_agent.rpc.params import check_bounds, check_params, listed
from kctl_agent.rpc.wire import JsonObject

if TYPE_CHECKING:
    from kctl.master.operations.base import Caller as Caller
    from kctl.master.operations.base import Report as Report
    from kctl.master.operations.context import Context as Context
else:  # half a second of imports, which the command line does without
    Caller = Context = Report = object

SHORT_SECONDS = 30.0
BATCH_SECONDS = 120.0
"""For the end of the running batches."""
LONG_SECONDS = 600.0

ALL_HOSTS: Final = "all"
_FOR_EVERY: Final = (
    Param("deadline_seconds", "number", "give up after this time"),
    Param("host", "string", "have this host carry it out, or `all` one after another"),
)
Done: TypeAlias = tuple[str, JsonObject]
"""What has happened, in one sentence and as an object."""
OnOne: TypeAlias = Callable[[str, JsonObject], Awaitable[Done]]
"""Has a host carry out the operation with these parameters."""


def described(kind: type[FleetOperation]) -> JsonObject:
    """An operation for those who make forms of it: `rpc`, `summary`, `params`, and whether it `changes` anything."""
    summary = (kind.__doc__ or "").partition("\n")[0]
    params = [asdict(each) for each in listed(kind)]
    return {"rpc": kind.rpc, "summary": summary, "params": params, "changes": kind.changes}


def with_host(params: JsonObject) -> JsonObject:
    """Returns parameters with the host that stands before the names of processes, as a fleet on several shows them, as
    `host`. Raises BadParams: those would be several."""
    names = {key: value.split(",") for key in ("name", "worker") if isinstance(value := params.get(key), str)}
    found = {host_and_name(each)[0] for value in names.values() for each in value}
    if not any(found):
        return params
    hosts = found | {params.get("host", max(found))}
    if len(hosts) > 1:
        raise BadParams("name processes of one host at a time")
    own = {key: ",".join(host_and_name(each)[1] for each in value) for key, value in names.items()}
    return {**params, **own, "host": hosts.pop()}


@dataclass(frozen=True, slots=True)
class FleetOperation:
    """An operation on a fleet: a frozen dataclass whose fields are its parameters, its docstring the help of its
    command. One with `is_long` is answered with its id while it is under way; `changes`: it is no question."""

    rpc: ClassVar[str]
    is_long: ClassVar[bool] = False
    changes: ClassVar[bool] = True
    for_all_hosts: ClassVar[bool] = False
    """Whether all hosts may be asked to carry it out, one after another."""
    shared_by_hosts: ClassVar[str] = ""
    """A parameter that names what all hosts share: if it is given and no host is, all are meant."""
    limit_seconds: ClassVar[float] = SHORT_SECONDS
    """Given up then, unless the caller sets a deadline."""

    @classmethod
    def given(cls, params: JsonObject) -> FleetOperation:
        """One with these parameters, without `deadline_seconds` and `host`, which every operation takes. Raises
        BadParams: they do not fit, or make no sense; the message names the one."""
        check_params(cls.rpc, (*listed(cls), *_FOR_EVERY), params)
        if params.get("deadline_seconds", 1) <= 0:
            raise BadParams(f"{cls.rpc}: deadline_seconds must be above 0")
        check_bounds(cls.rpc, cls, params)
        found = cls(**{name: value for name, value in params.items() if name not in ("deadline_seconds", "host")})
        if (problem := found.problem()) is not None:
            raise BadParams(problem)
        return found

    async def shared(self, context: Context, params: JsonObject, _on_one: OnOne) -> dict[str, JsonObject]:
        """Returns what each host is to do of what all are, in order. Raises KctlError: nothing was changed."""
        assert context.hosts is not None
        return dict.fromkeys(context.hosts.names, params)

    def joined(self, results: dict[str, JsonObject]) -> JsonObject:
        """Returns the result of all hosts."""
        return {"hosts": results}

    def deadline_seconds(self, context: Context) -> float:  # noqa: ARG002 - for those that depend on the settings
        return self.limit_seconds

    def problem(self, mark: str = "") -> str | None:  # noqa: ARG002 - for those that name parameters
        """What is wrong with the parameters by themselves, if anything; on a command line `mark` is before a name."""
        return None

    def touches(self, context: Context) -> frozenset[str]:
        """What it must have for itself: processes by name, `reading`, `scale`. Nothing: it contradicts no other. Raises
        BadParams: there is nothing of a name that is given."""
        raise NotImplementedError

    async def carry_out(self, context: Context, caller: Caller, report: Report) -> Done:
        """Does it, and raises what went wrong; cancelled, it takes back what can be."""
        raise NotImplementedError
