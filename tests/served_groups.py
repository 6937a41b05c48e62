"""Groups of clusters as snapshots, and the HTTP server of `kctl exporter` over them, in this process."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from kctl.errors import BrokerUnreachable
from kctl.groups.snapshot import Clusters, ClusterSnapshot, GroupSnapshot
from kctl.http.access import AccessRights
from kctl.http.groups_api import GroupsSource, groups_app
from kctl.http.server import HttpServer, bind
from kctl.kafka.groups import Group, Member
from kctl.reduce.base import GroupStats
from kctl.reduce.partitions import kafka_lag
from kctl.rows.partitions import ResetPolicy
from kctl.status import Assessment, Status
from tests.fleet_snapshot import ODD
from tests.partitions import Row, assessments_of, columns_of, joined

Latest = dict[str, ClusterSnapshot | None]


def group(
    name: str, lag: int | None, growth: float | None = None, status: Status = Status.OK, reason: str = "so it is"
) -> GroupSnapshot:
    end = None if lag is None else 4 + lag
    rows = columns_of(Row("orders", 0, 0, 4, None, end, None, None, None, 1.0, ResetPolicy.NONE))
    assessed = Assessment(status, reason, 2.5, growth)
    of_one = f"1 of 1 partitions {status.value}: orders-0; {reason}"
    judged = replace(assessed, reason=of_one if status.severity > Status.OK.severity else f"1 {status.value}")
    stats = GroupStats("stable", 1)
    partitions = rows.of_group(0), assessments_of(assessed)
    return GroupSnapshot("main", name, *partitions, judged, kafka_lag(rows), stats, "classic", 1, age_seconds=1.0)


def cluster(name: str, *groups: GroupSnapshot, errors: dict[str, str] | None = None) -> ClusterSnapshot:
    groups = tuple(replace(each, cluster=name) for each in groups)
    up, reasons = {"groups": not errors}, errors or {}
    columns = joined(groups)
    return ClusterSnapshot(name, groups, 1000.0, 1.7e9, 0.1, up, {}, reasons, 0, not errors, columns=columns)


CLUSTERS = Clusters(
    (
        cluster(
            "main",
            group("billing", 9, growth=-3.0, status=Status.STALLED, reason="nothing is committed"),
            *(group("lost", None), group(ODD, 2)),
            *(replace(group(each, 12), detail=each) for each in ("topic", "group")),
        ),
        cluster("other", errors={"groups": "away"}),
    )
)


async def _no_metrics(_accept: str, _encoding: str) -> tuple[bytes, str, bool]:
    return b"", "text/plain", False


def source_of_groups(latest: Callable[[], Latest]) -> GroupsSource:
    return GroupsSource(latest=latest, describe=_described, metrics=_no_metrics, clock=lambda: 1003.0)


@contextmanager
def serving_groups(latest: Latest) -> Iterator[str]:
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # as in the exporter
    server = HttpServer(groups_app(source_of_groups(lambda: dict(latest)), AccessRights()), bind("127.0.0.1", 0))
    with asyncio.Runner() as runner:
        thread = threading.Thread(target=runner.run, args=(server.serve(),))
        loop = runner.get_loop()
        thread.start()
        try:
            yield server.url
        finally:
            loop.call_soon_threadsafe(server.stop)
            thread.join()


EVIL = "<img src=x onerror=\"document.title='owned'\">\u202egnp"


def _described(_cluster: str, name: str) -> Group:
    if name == "lost":
        raise BrokerUnreachable("nobody answers")
    members = (Member("m-1", "c", "/h", None, {"orders": (0, 1)}), Member("m-2", EVIL, "/h", "static", {}))
    return Group(name, 1, "Stable", "classic", "consumer", "range", members)
