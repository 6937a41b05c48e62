"""How many consumers a heap holds; measured: 325 kB for one of a topic of 400 partitions, 715 kB with 1,000."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kctl_agent.spark.conf import CAPACITY, KEPT_CONSUMERS, MEMORY_EXITS, limit_kept_consumers

MB = 1 << 20


class Conf(dict[str, str]):
    set = dict.__setitem__


def session(
    heap: int, capacity: str = str(KEPT_CONSUMERS), master: str = "local[2]", exits: int = 0
) -> tuple[Any, Conf]:
    conf = Conf({CAPACITY: capacity, MEMORY_EXITS: str(exits)})
    runtime = SimpleNamespace(maxMemory=lambda: heap)
    env = SimpleNamespace(get=lambda: SimpleNamespace(conf=lambda: conf))
    jvm = SimpleNamespace(
        org=SimpleNamespace(apache=SimpleNamespace(spark=SimpleNamespace(SparkEnv=env))),
        java=SimpleNamespace(lang=SimpleNamespace(Runtime=SimpleNamespace(getRuntime=lambda: runtime))),
    )
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, _jvm=jvm)), conf


@pytest.mark.parametrize(
    ("topics", "heap", "kept"),
    [([8], 512, 1000), ([400], 512, 1000), ([600, 400], 512, 589), ([1000], 512, 375), ([1000], 2048, 1000),
     ([10_000], 512, 64), ([400] * 10, 2048, 3303), ([400] * 5, 2048, 2000)],
)  # fmt: skip
def test_as_many_are_kept_as_half_the_heap_holds(topics: list[int], heap: int, kept: int) -> None:
    spark, conf = session(heap * MB)

    limit_kept_consumers(spark, topics)

    assert conf[CAPACITY] == str(kept)


@pytest.mark.shows("after each out-of-memory exit a JVM keeps a quarter of the consumers, at least one")
def test_after_each_exit_for_lack_of_memory_a_quarter_of_the_consumers_is_kept() -> None:
    kept = []
    for exits in range(6):
        spark, conf = session(512 * MB, exits=exits)
        limit_kept_consumers(spark, [400])
        kept.append(int(conf[CAPACITY]))

    assert kept == [1000, 59, 15, 3, 1, 1]


def test_fewer_consumers_than_partitions_are_named_with_the_heap_that_all_need() -> None:
    spark, _ = session(512 * MB)

    assert limit_kept_consumers(spark, [1000]) == (
        "375 of 1,000 consumers are kept between batches, and the others are reopened for each: to keep all, the JVM "
        "needs a heap of 1,364 MB and has 512 (engine.heap, spark.driver_memory)"
    )
    assert limit_kept_consumers(spark, [1000]) is None


def test_what_the_user_has_set_stays_and_a_cluster_has_heaps_of_its_own() -> None:
    for spark, conf in (session(512 * MB, "2000"), session(512 * MB, master="spark://host:7077")):
        before = dict(conf)

        assert limit_kept_consumers(spark, [1000]) is None
        assert conf == before
