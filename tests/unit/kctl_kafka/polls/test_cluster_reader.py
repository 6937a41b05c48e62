from __future__ import annotations

from contextlib import closing

import pytest

from kctl.kafka.client.access import plain
from kctl.kafka.polls.cluster_reader import ClusterReader
from tests.servers.scripted_broker import Answers, ScriptedBroker, Step
from tests.unit.kctl_kafka.scripts import LOADING, NOT_COORDINATOR, described, group

LISTED = {"group_id": "billing", "protocol_type": "consumer", "group_state": "Empty", "group_type": "classic"}
OTHER = {**LISTED, "group_id": "other"}


@pytest.mark.parametrize("code", [LOADING, NOT_COORDINATOR])
def test_a_group_on_no_list_is_gone_only_when_its_coordinator_reports_that(code: int) -> None:
    """A moving coordinator lists no groups and reports no error, and a new one denies them for a moment."""
    both, one = Answers({"groups": [LISTED, OTHER]}), Answers({"groups": [OTHER]})
    script: dict[str, list[Step]] = {
        # the reader lists once, and again before a described group counts as missing.
        "ListGroups": [both, one, one, one, both, one, one],
        "DescribeGroups": [described(group("billing", code=code)), described(), described()],
        "OffsetFetch": [Answers({"groups": [{"group_id": name, "topics": []} for name in ("billing", "other")]})],
    }
    with (
        ScriptedBroker(script, topics={"orders": 1}) as broker,
        closing(ClusterReader(plain(broker.address), 10)) as reader,
    ):
        first = reader.read()
        moving = reader.read()
        denied = reader.read()
        back = reader.read()
        gone = reader.read()

    assert first.groups.keys() == {"billing", "other"}
    assert (set(moving.groups), moving.unclear) == ({"other"}, {"billing"})
    assert moving.errors.keys() == {"groups", "committed", "members"}
    assert (set(denied.groups), denied.unclear) == ({"other"}, {"billing"})
    assert not denied.errors
    assert back.groups.keys() == {"billing", "other"}
    assert (set(gone.groups), gone.unclear, gone.errors) == ({"other"}, set(), {})
    assert broker.asked.count("DescribeGroups") == 3
