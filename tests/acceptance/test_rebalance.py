"""Workers join and leave under load: no message is lost or stored twice, and all name one leader."""

from __future__ import annotations

import os
import signal

import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.acceptance.offset_views import lie_between_two_readings_of_kafkas_tool, show_what_kafkas_tool_shows
from tests.conftest import eventually
from tests.servers import kafka_tools

pytestmark = pytest.mark.timeout(400)


def agree_on_a_leader(fleet: Fleet, members: int) -> bool:
    answer = fleet.ask("member_leader")
    if not answer or len(answer["members"]) != members:
        return False
    leaders = [member for member in answer["members"] if member["is_leader"]]
    return (
        len({member["generation"] for member in answer["members"]}) == 1
        and answer["leader"] is not None
        and [leader["member_id"] for leader in leaders] == [answer["leader"]]
    )


def queries_of_first(fleet: Fleet) -> int:
    return (fleet.directory / "logs" / "worker-0.log").read_text().count("kctl_agent.worker reads ")


@pytest.mark.shows("CLI, HTTP and Prometheus show the numbers of Kafka's own tool")
@pytest.mark.parametrize("assignor", [pytest.param("range", marks=pytest.mark.long), "cooperative-sticky"])
def test_none_lost_as_workers_come_and_go(assignor: str, make_fleet: MakeFleet) -> None:
    # A killed worker stays away for longer than its session, so that its successor misses the rebalance.
    fleet = make_fleet(workers=1, partitions=4, backoff="25", kafka=f'assignor = "{assignor}"')
    fleet.start("worker-0")
    load = fleet.load(rate=1000)
    eventually(lambda: fleet.owners() == {"worker-0"}, START_SECONDS, "the first worker has everything")
    eventually(lambda: agree_on_a_leader(fleet, 1), SETTLE_SECONDS, "one member, its own leader")

    fleet.attach("worker-1")
    eventually(lambda: fleet.owners() == {"worker-0", "worker-1"}, START_SECONDS, "a second one joined")
    eventually(lambda: agree_on_a_leader(fleet, 2), SETTLE_SECONDS, "two members, one leader")
    if assignor == "cooperative-sticky":
        eventually(lambda: queries_of_first(fleet) >= 2, SETTLE_SECONDS, "what stays is read on")
        assert queries_of_first(fleet) == 2, "what stays was interrupted by more than one query restart"

    first = fleet.workers()["worker-0"]["pid"]
    os.kill(first, signal.SIGKILL)
    eventually(lambda: fleet.owners() == {"worker-1"}, SETTLE_SECONDS, "the survivor takes over")
    eventually(lambda: fleet.owners() == {"worker-0", "worker-1"}, START_SECONDS, "the killed one came back")
    eventually(lambda: agree_on_a_leader(fleet, 2), SETTLE_SECONDS, "two members, one leader again")
    assert fleet.workers()["worker-0"]["pid"] != first
    lie_between_two_readings_of_kafkas_tool(fleet)

    fleet.finish(load)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "all is committed")
    show_what_kafkas_tool_shows(fleet, members=2)
    assert fleet.stored_once() > 10_000
    assert kafka_tools.describe_state(fleet.broker.bootstrap_servers, fleet.group).state == "Stable"
