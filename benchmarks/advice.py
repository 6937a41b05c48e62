"""What following `kctl advise` does to a fleet, beside the formulas of KEDA and Flink, on the same loads.

Each load runs on a virtual clock (`_loads.py`), scaled by: `kctl`, the real code; `keda`, total lag divided by a
threshold of ten seconds of a worker's work, read every 30 s, with the HPA's defaults (10 % tolerance, doubling or four
more every 15 s, down by the largest of five minutes); `flink`, the formula of its Kubernetes operator with its
defaults (utilisation 0.7 within 0.4 and 1, window 15 min, catch-up 30 min, five minutes of rest after a change, down
once an hour and by 40 % at most, a number that divides the partitions). Neither sees more than totals.

    python -m benchmarks.advice [--load NAME] [--page docs/advice.md] [--plot docs/pictures/advice.svg]

Prints a JSON line for each load and scaler. `late` is the share of the time in which some partition's lag is more than
60 s of its arrivals.
"""

import argparse
import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from math import ceil
from pathlib import Path

import numpy as np

from benchmarks._loads import CAPACITY, LOADS, SLOT_SECONDS, Advised, Fleet, Load, Slot, run

_LATE_SECONDS = 60.0
_THRESHOLD = 10 * CAPACITY
_PLOTTED = ("daily curve", "burst", "hot partition", "slow storage")
_COLOURS = {"kctl": "#0b6bcb", "keda": "#c2410c", "flink": "#15803d"}
_POINTS = 200
Numbers = tuple[int, int]


class Keda:
    """KEDA's Kafka scaler below a HorizontalPodAutoscaler."""

    def __init__(self) -> None:
        self._wanted: deque[tuple[float, int]] = deque()
        self._lag, self._read_at = 0.0, -30.0

    def __call__(self, fleet: Fleet) -> Numbers:
        if fleet.at - self._read_at >= 30.0:
            self._lag, self._read_at = float(fleet.lag.sum()), fleet.at
        now, most = fleet.workers, len(fleet.keys)
        wanted = min(max(ceil(self._lag / _THRESHOLD), 1), most)
        if abs(self._lag / _THRESHOLD / now - 1) <= 0.1:
            wanted = now
        self._wanted.append((fleet.at, wanted))
        while self._wanted[0][0] < fleet.at - 300:
            self._wanted.popleft()
        if fleet.at % 15:
            return now, fleet.sinkers
        if wanted > now:
            return min(wanted, max(2 * now, now + 4)), fleet.sinkers
        return min(now, max(each for _, each in self._wanted)), fleet.sinkers


class Flink:
    """The formula of the autoscaler of Flink's Kubernetes operator."""

    def __init__(self) -> None:
        self._ends: deque[tuple[float, float]] = deque()
        self._changed_at = self._lowered_at = 0.0

    def __call__(self, fleet: Fleet) -> Numbers:
        self._ends.append((fleet.at, float(fleet.end.sum())))
        while self._ends[0][0] < fleet.at - 900:
            self._ends.popleft()
        now, numbers = fleet.workers, (fleet.workers, fleet.sinkers)
        seconds = fleet.at - self._ends[0][0]
        if fleet.at - self._changed_at < 300 or seconds < 60 or fleet.blocked:
            return numbers
        rate, lag = (self._ends[-1][1] - self._ends[0][1]) / seconds, float(fleet.lag.sum())
        capacity = CAPACITY / max(now / fleet.load.useful_workers, 1.0)
        if rate / 1.0 + lag / 1800 <= now * capacity <= rate / 0.4:
            return numbers
        wanted = max(ceil((rate / 0.7 + lag / 1800) / capacity), ceil(0.6 * now), 1)
        size = len(fleet.keys)
        wanted = next((each for each in range(min(wanted, size), size + 1) if size % each == 0), size)
        if wanted == now or (wanted < now and fleet.at - self._lowered_at < 3600):
            return numbers
        self._changed_at = fleet.at
        self._lowered_at = fleet.at if wanted < now else self._lowered_at
        return wanted, fleet.sinkers


SCALERS: dict[str, Callable[[], Callable[[Fleet], Numbers]]] = {"kctl": Advised, "keda": Keda, "flink": Flink}


def main() -> None:
    parser = argparse.ArgumentParser(description="following the advice, beside KEDA and Flink")
    parser.add_argument("--load", help="only this one")
    parser.add_argument("--page", type=Path, help="write the table there")
    parser.add_argument("--plot", type=Path, help="write the plot there, an SVG")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    plots: dict[str, dict[str, list[Slot]]] = {}
    for load in (each for each in LOADS if options.load in (None, each.name)):
        for name, scaler in SCALERS.items():
            slots = list(run(load, scaler()))
            rows.append(measured(load, name, slots))
            print(json.dumps(rows[-1]), flush=True)
            if load.name in _PLOTTED:
                plots.setdefault(load.name, {})[name] = slots
    if options.page is not None:
        text = options.page.read_text(encoding="utf-8")
        head, _, rest = text.partition(_BEGIN)
        options.page.write_text(f"{head}{_BEGIN}\n{table(rows)}\n{_END}{rest.partition(_END)[2]}", encoding="utf-8")
    if options.plot is not None:
        options.plot.write_text("\n".join(plot(plots)) + "\n", encoding="utf-8")


_BEGIN, _END = "<!-- python -m benchmarks.advice -->", "<!-- end -->"


def measured(load: Load, scaler: str, slots: Sequence[Slot]) -> dict[str, object]:
    worst = np.array([slot.worst for slot in slots])
    numbers = [(slot.workers, slot.sinkers) for slot in slots]
    return {
        "benchmark": "advice",
        "load": load.name,
        "scaler": scaler,
        "late_percent": round(100 * float((worst > _LATE_SECONDS).mean()), 1),
        "p99_lag_seconds": round(float(np.quantile(worst, 0.99))),
        "worker_hours": round(sum(slot.workers for slot in slots) * SLOT_SECONDS / 3600, 1),
        "most_workers": max(slot.workers for slot in slots),
        "changes": sum(before != after for before, after in pairwise(numbers)),
        "hours": load.hours,
    }


def table(rows: Sequence[dict[str, object]]) -> str:
    columns = {"late_percent": "late, %", "p99_lag_seconds": "p99 of the lag, s", "worker_hours": "worker-hours"}
    columns |= {"most_workers": "most workers", "changes": "changes"}
    head = f"| load | {' | '.join(columns.values())} |\n|---{'|---' * len(columns)}|"
    lines = (
        f"| {load}, {hours:g} h | "
        + " | ".join("/".join(f"{row[name]:,}" for row in of_load) for name in columns)
        + " |"
        for (load, hours), of_load in (
            (key, list(found)) for key, found in groupby(rows, lambda row: (row["load"], row["hours"]))
        )
    )
    return "\n".join([head, *lines])


def plot(plots: dict[str, dict[str, list[Slot]]]) -> Iterator[str]:
    """Yields an SVG: of each load the number of workers above, the lag below."""
    width, height, left, top = 420, 90, 60, 40
    size = f'width="1000" height="{top + len(plots) * 130}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    yield '<rect width="100%" height="100%" fill="white"/>'
    for place, (name, colour) in enumerate(_COLOURS.items()):
        yield f'<text x="{left + place * 70}" y="20" fill="{colour}">{name}</text>'
    yield f'<text x="{left + 260}" y="20">left: workers; right: lag of the worst partition in minutes</text>'
    for row, (load, by_scaler) in enumerate(plots.items()):
        for column, value in enumerate((_workers, _minutes)):
            x, y = left + column * (width + 70), top + row * 130
            series = {
                name: [value(slot) for slot in slots[:: max(len(slots) // _POINTS, 1)]]
                for name, slots in by_scaler.items()
            }
            most = max(max(each) for each in series.values()) or 1.0
            yield f'<text x="{x}" y="{y + 10}">{load}, {by_scaler["kctl"][-1].at / 3600:.0f} h</text>'
            yield f'<text x="{x - 6}" y="{y + 28}" text-anchor="end">{most:.0f}</text>'
            yield f'<path d="M{x} {y + 18}V{y + 18 + height}H{x + width}" fill="none" stroke="#888"/>'
            for name, values in series.items():
                points = " ".join(
                    f"{x + width * number / (len(values) - 1):.1f},{y + 18 + height * (1 - each / most):.1f}"
                    for number, each in enumerate(values)
                )
                yield f'<polyline points="{points}" fill="none" stroke="{_COLOURS[name]}" stroke-width="1.2"/>'
    yield "</svg>"


def _workers(slot: Slot) -> float:
    return float(slot.workers)


def _minutes(slot: Slot) -> float:
    return slot.worst / 60


if __name__ == "__main__":
    main()
