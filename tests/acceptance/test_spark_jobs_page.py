"""The two-minute run of docs/spark-jobs.md works as it is written: broker, job, `checkpoint show`, exporter."""

import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kctl.demo.kafka_broker import free_ports
from tests.acceptance.documented import Terminals
from tests.conftest import eventually

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
SECTION = (
    (ROOT / "docs" / "spark-jobs.md").read_text(encoding="utf-8").split("## Try it in two minutes")[1].split("\n## ")[0]
)


@pytest.fixture
def terminals(short_dir: Path) -> Iterator[Terminals]:
    port, http = map(str, free_ports(2))
    names = {"9092": port, "9751": http, "/tmp/report": str(short_dir / "report")}
    with closing(Terminals(short_dir, names, KCTL_HTTP_PORT=http)) as made:
        yield made


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SECTION, re.DOTALL)


def test_the_two_minute_run_shows_the_lag_of_a_job(terminals: Terminals, short_dir: Path) -> None:
    [job], [settings], [lines] = blocks("python"), blocks("toml"), blocks("sh")
    (short_dir / "job.py").write_text(terminals.own(job))
    (short_dir / "exporter.toml").write_text(terminals.own(settings))
    broker, create, produce, submit, show, exporter, group = (line.split("   #")[0] for line in lines.splitlines())

    began = time.monotonic()
    terminals.begin(broker)
    eventually(lambda: "orders" in terminals.run(create), 60, "the broker answers")
    terminals.run(produce)
    terminals.begin(submit)
    eventually(lambda: re.search(r"Spark would start from it", terminals.run(show)), 120, "the job has a checkpoint")
    eventually(lambda: sum(next_offset for next_offset, _ in offsets(terminals.run(show))) == 1000, 60, "all is read")
    terminals.begin(exporter)
    in_group = eventually(lambda: "report" in (text := terminals.run(group)) and text, 60, "the exporter shows it")
    print(f"after {time.monotonic() - began:.0f} s", in_group, sep="\n")

    assert [lag for _, lag in offsets(terminals.run(show))] == ["0", "0"]


def offsets(shown: str) -> list[tuple[int, str]]:
    rows = [line.split() for line in shown.splitlines() if line.startswith("orders")]
    return [(int(row[2]), row[5]) for row in rows]
