from __future__ import annotations

from dataclasses import replace

from kctl.master.events import EventFeed
from kctl_agent.replies.workers import Event
from tests.fleet_snapshot import UNIX, ask, client_of, history_of, snapshot, source_of
from tests.served_groups import cluster, group

PATH = "/api/v1/history"


async def test_the_history_of_the_fleet_comes_in_columns_with_its_marks() -> None:
    later = replace(snapshot(), taken_at=1005.0, taken_at_unix=UNIX + 3)
    feed = EventFeed()
    kinds = ("rebalance", "state", "operation", "rewound")
    feed.publish(Event(UNIX, kind, f"a {kind}", worker="worker-0") for kind in kinds)
    source = source_of(later, history=history_of(snapshot(), later), feed=feed)

    body = (await ask(source, PATH)).json()

    assert (body["began_at"], body["first_at"], body["step_seconds"]) == (UNIX - 2, UNIX - 900, 5.0)
    assert body["series"]["lag"]["most"][-2:] == body["series"]["lag"]["least"][-2:] == [12.0, 12.0]
    assert body["series"]["lag"]["most"][0] is None, "before the master was started"
    assert [(each["kind"], each["worker"]) for each in body["marks"]] == [
        ("rebalance", "worker-0"),
        ("operation", "worker-0"),
        ("rewound", "worker-0"),
    ]
    assert (await ask(source, f"{PATH}?until={UNIX - 1}")).json()["marks"] == []


METRICS = {"topic=orders": 4, "topic=orders&partition=1": 4, "worker=worker-0&seconds=86400": 7, "seconds=3600": 7}
MISSING = "topic=unheard", "topic=orders&partition=77", "worker=nobody", "partition=1", "worker=worker-0&topic=orders"
INVALID = "seconds=nan", "seconds=1e9", "until=inf"


async def test_each_subject_has_its_metrics_and_missing_or_invalid_values_are_rejected() -> None:
    async with client_of(snapshot()) as client:
        found = {query: (await client.get(f"{PATH}?{query}")).json()["series"] for query in METRICS}
        codes = [(await client.get(f"{PATH}?{query}")).status_code for query in (*MISSING, *INVALID)]

    assert {query: len(series) for query, series in found.items()} == METRICS
    assert codes == [404] * len(MISSING) + [400] * len(INVALID)


async def test_a_group_is_found_by_cluster_and_name_and_one_that_is_not_kept_has_a_sentence() -> None:
    with_groups = replace(snapshot(), clusters=(cluster("main", group("audit", 7)),))
    source = source_of(with_groups, history=history_of(with_groups))

    body = (await ask(source, f"{PATH}?group=audit&cluster=main")).json()
    missing = await ask(source, f"{PATH}?group=audit&cluster=eu")

    assert ([*body["series"]], body["marks"]) == (["lag", "lag_seconds"], [])
    assert body["series"]["lag"]["most"][-1] == 7.0
    assert (missing.status_code, "20 with the most lag" in missing.text) == (404, True)
