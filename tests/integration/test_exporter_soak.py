"""`kctl exporter` does not grow while groups come and go."""

from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import eventually
from tests.exporters import Exporter, running_exporter
from tests.meanwhile import Meanwhile
from tests.servers.scripted_broker import Answers, ScriptedBroker

PARTITIONS = 2
LASTING = tuple(f"lasting-{number}" for number in range(20))
TOPIC = "orders"


class Fickle:
    """Each cycle has other groups besides the permanent ones. All keep committing."""

    def __init__(self, groups_per_cycle: int) -> None:
        self._groups_per_cycle = groups_per_cycle
        self.cycles = 0

    def script(self) -> dict[str, Answers]:
        return {
            "ListGroups": Answers(self._list),
            "DescribeGroups": Answers(self._describe),
            "OffsetFetch": Answers(self._committed),
            "ListOffsets": Answers(self._offsets),
        }

    def _names(self) -> list[str]:
        return [*LASTING, *(f"throw-away-{self.cycles}-{number}" for number in range(self._groups_per_cycle))]

    def _list(self, _: Any) -> dict[str, Any]:
        known = {"protocol_type": "consumer", "group_state": "Empty", "group_type": "classic"}
        return {"groups": [{"group_id": name, **known} for name in self._names()]}

    def _describe(self, request: Any) -> dict[str, Any]:
        return {"groups": [{"group_id": name, "group_state": "Dead"} for name in request.groups]}

    def _committed(self, request: Any) -> dict[str, Any]:
        # This is the last question of a cycle. The next cycle has other groups.
        partitions = [{"partition_index": n, "committed_offset": self.cycles} for n in range(PARTITIONS)]
        topics = [{"name": TOPIC, "partitions": partitions}]
        self.cycles += 1
        return {"groups": [{"group_id": group.group_id, "topics": topics} for group in request.groups]}

    def _offsets(self, request: Any) -> dict[str, Any]:
        [topic] = request.topics
        offsets = {-1: self.cycles + 7, -2: 0}
        partitions = [
            {"partition_index": each.partition_index, "offset": offsets[each.timestamp]} for each in topic.partitions
        ]
        return {"topics": [{"name": TOPIC, "partitions": partitions}]}


class Watched(Meanwhile):
    def __init__(self, exporter: Exporter, fickle: Fickle) -> None:
        super().__init__(0.2)
        self._exporter = exporter
        self._fickle = fickle
        self._process = psutil.Process(exporter.process.pid)
        self.held: list[tuple[int, int, int]] = []  # cycles so far, bytes, threads and descriptors

    def turn(self) -> None:
        status, page = self._exporter.get("/metrics")
        assert status == 200
        assert page.count("kctl_group_status{") >= len(LASTING)
        bytes_ = self._process.memory_full_info().uss
        self.held.append((self._fickle.cycles, bytes_, self._process.num_threads() + self._process.num_fds()))


@pytest.mark.shows("thousands of groups that come and go do not raise memory, threads or descriptors")
@pytest.mark.parametrize(
    ("cycles", "groups_per_cycle"),
    [
        pytest.param(30, 200, id="6,000 groups"),
        pytest.param(8640, 50, id="a day of cycles", marks=[pytest.mark.long, pytest.mark.timeout(7200)]),
    ],
)
def test_groups_that_come_and_go_leave_nothing_behind(short_dir: Path, cycles: int, groups_per_cycle: int) -> None:
    # A day has 8,640 cycles of 10 s.
    fickle = Fickle(groups_per_cycle)
    with ScriptedBroker(fickle.script(), topics={TOPIC: PARTITIONS}) as broker:
        words = ("-b", broker.address, "--set", "exporter.interval_seconds=0.1")
        with running_exporter(short_dir, *words, is_forked=False) as exporter:
            eventually(exporter.is_ready, what="it is polled")
            with Watched(exporter, fickle) as watched:
                eventually(lambda: fickle.cycles >= cycles, cycles * 2.0, "all cycles")
            last = exporter.samples()

    assert watched.wrong == []
    # The allocator returns ten megabytes for a while now and then, so only the peaks are comparable.
    grown = max(each for at, each, _ in watched.held if at > cycles * 3 / 4)
    grown -= max(each for at, each, _ in watched.held if at < cycles / 2)
    assert grown < 3 * 2**20, f"{grown / 2**20:.1f} MiB more: {[each // 2**20 for _, each, _ in watched.held]}"
    resources = [each for at, _, each in watched.held if at > cycles / 4]
    assert max(resources) - min(resources) <= 4
    shown = last.of("kctl_group_lag", "group")
    assert len(shown) == len(LASTING) + groups_per_cycle
