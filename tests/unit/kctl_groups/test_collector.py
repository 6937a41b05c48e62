from __future__ import annotations

import asyncio
import contextlib

import pytest

from kctl.config.sections import ExporterSection, StatusSection
from kctl.errors import BrokerUnreachable
from kctl.groups.collector import ClusterCollector, CollectedCluster
from kctl.groups.snapshot import ClusterSnapshot
from kctl.kafka.client.access import plain
from kctl.kafka.polls.cluster_reading import ClusterReading


class Away:
    def read(self) -> ClusterReading:
        raise BrokerUnreachable("nobody is there")

    def close(self) -> None:
        """Owns nothing to close."""


async def test_a_bug_ends_no_collection(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = CollectedCluster("main", plain("nowhere:1"), ExporterSection(interval_seconds=0.01), StatusSection())
    collector = ClusterCollector(cluster)
    monkeypatch.setattr(collector, "_reader", Away())
    seen: list[ClusterSnapshot] = []

    def fail_once(snapshot: ClusterSnapshot) -> None:
        seen.append(snapshot)
        if len(seen) == 1:
            raise RuntimeError("a bug")

    collector.prepare.append(fail_once)
    task = asyncio.create_task(collector.run())
    async with asyncio.timeout(30):
        while len(seen) < 3:  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.01)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await collector.close()

    assert [record.exc_info[1].args for record in caplog.records if record.exc_info] == [("a bug",)]  # type: ignore[union-attr]
    assert seen[-1].errors["groups"] == "nobody is there"
