"""Committed offset, log end and lag of each partition, from every output of a fleet and from Kafka's own tool."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.fleets import SETTLE_SECONDS, Fleet
from tests.conftest import eventually
from tests.servers import kafka_tools

Offsets = dict[int, tuple[int | None, int | None, int | None]]
"""partition -> committed, end, lag"""


def by_kafkas_tool(fleet: Fleet) -> Offsets:
    rows = kafka_tools.describe_group(fleet.broker.bootstrap_servers, fleet.group)
    return {row.partition: (row.current_offset, row.log_end_offset, row.lag) for row in rows}


def by_rpc(fleet: Fleet) -> Offsets:
    rows = fleet.rpc("offset_checker")["rows"]
    return {r["partition"]: (r["current_offset"], r["kafka_max_offset"], r["remaining_count"]) for r in rows}


def fetch(fleet: Fleet, path: str) -> str:
    with urllib.request.urlopen(f"{fleet.url()}{path}", timeout=60) as response:
        text: str = response.read().decode()
    return text


def by_http(fleet: Fleet) -> Offsets:
    rows = json.loads(fetch(fleet, "/api/v1/lag"))["rows"]
    return {r["partition"]: (r["current_offset"], r["kafka_max_offset"], r["remaining_count"]) for r in rows}


def by_prometheus(fleet: Fleet) -> Offsets:
    found: dict[int, dict[str, int]] = {}
    for family in text_string_to_metric_families(fetch(fleet, "/metrics")):
        for sample in family.samples:
            if "partition" in sample.labels and sample.labels["topic"] == fleet.topic:
                found.setdefault(int(sample.labels["partition"]), {})[sample.name] = int(sample.value)
    names = ("kctl_consumer_committed_offset", "kctl_partition_end_offset", "kctl_consumer_lag")
    return {p: (row.get(names[0]), row.get(names[1]), row.get(names[2])) for p, row in found.items()}


def young_answer(fleet: Fleet, since: float) -> dict[int, dict[str, Any]] | None:
    """Our rows when every number in them was taken after `since`."""
    asked, rows = time.monotonic(), fleet.offsets()
    young = rows and all(row["age_seconds"] is not None and asked - row["age_seconds"] > since for row in rows.values())
    return rows if young else None


def lie_between_two_readings_of_kafkas_tool(fleet: Fleet) -> None:
    """For use while a producer runs."""
    before = by_kafkas_tool(fleet)
    read_at = time.monotonic()
    ours = eventually(lambda: young_answer(fleet, read_at), SETTLE_SECONDS)
    after = by_kafkas_tool(fleet)
    for partition, row in ours.items():
        for i, number in enumerate((row["current_offset"], row["kafka_max_offset"])):
            low, high = before[partition][i], after[partition][i]
            assert low is not None
            assert high is not None
            assert low <= number <= high, f"partition {partition}: {low} <= {number} <= {high}"


def show_what_kafkas_tool_shows(fleet: Fleet, members: int) -> None:
    """For a quiet topic: offsets in every view, and the members with their partitions."""
    expected = by_kafkas_tool(fleet)
    assert sorted(expected) == list(range(fleet.partitions))
    eventually(lambda: by_rpc(fleet) == expected, what="the workers have polled since")
    eventually(lambda: by_http(fleet) == expected, what="the API has the same offsets")
    eventually(lambda: by_prometheus(fleet) == expected, what="Prometheus has the same offsets")
    eventually(lambda: fleet.rpc("kafka_lag")["total"] == 0, what="there is no lag")
    described = kafka_tools.describe_members(fleet.broker.bootstrap_servers, fleet.group)
    theirs = {(member.consumer_id, partition) for member in described for _, partition in member.assignment}

    def ours() -> set[tuple[str, int]]:
        answer = fleet.rpc("member_leader")["members"]
        return {(member["member_id"], tp["partition"]) for member in answer for tp in member["partitions"]}

    eventually(lambda: ours() == theirs, what="ours are the same")
    assert len({member for member, _ in theirs}) == members
