"""A transform that cannot be used is reported in one sentence by `kctl status`, and not retried; one that drops records
commits them."""

import json
import shutil
from pathlib import Path

import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, MakeFleet
from tests.command_lines import run_process
from tests.conftest import BRIEF_JVM, eventually

ROOT = Path(__file__).parents[2]


@pytest.mark.shows("an error of a transform is shown with file and line, also by `kctl config check`")
def test_config_check_calls_a_transform_and_names_the_place_of_its_error(short_dir: Path) -> None:
    config, module = short_dir / "kctl.toml", short_dir / "shop.py"
    config.write_text(
        '[kafka]\nbootstrap_servers = "b:1"\ngroup = "g"\ntopics = ["t"]\n[workers]\ntransform = "shop:clean"\n'
        f'[spark.conf]\n"spark.driver.extraJavaOptions" = "{BRIEF_JVM}"\n'
    )
    module.write_text("def clean(frame):\n    return frame.select('no_such_column')\n")

    rejected = run_process("-c", str(config), "config", "check", "--offline", "--timeout", "120", timeout=150)

    assert rejected.returncode == 2
    assert "the transform shop:clean raised AnalysisException: [UNRESOLVED_COLUMN.WITH_SUGGESTION]" in rejected.stderr
    assert "(shop.py:2)" in rejected.stderr


def order(number: int, status: str) -> bytes:
    return json.dumps({"id": f"o{number}", "amount": number, "status": status, "note": "x"}).encode()


@pytest.mark.long
@pytest.mark.shows("records that the transform of examples/ drops are committed, and never stored")
def test_the_example_keeps_what_is_paid_and_the_rest_counts_as_read(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(workers=1, partitions=1, workers_more='transform = "transform:paid"')
    shutil.copy(ROOT / "examples" / "transform.py", fleet.directory)
    fleet.start("worker-0")

    for number, status in enumerate(("open", "paid", "open", "paid", "open")):
        fleet.send(1, order(number, status))

    eventually(fleet.is_caught_up, SETTLE_SECONDS, "everything is committed, the last record, which is open, too")
    stored = [message for block in fleet.storage.blocks() for message in block.messages()]
    assert [(message.offset, json.loads(message.value or b"")) for message in stored] == [
        (1, {"id": "o1", "amount": 1.0}),
        (3, {"id": "o3", "amount": 3.0}),
    ]
