"""Each marked message becomes a row or a dead letter, however the transform marks it: kctl reads what Spark wrote, and
Spark what kctl requeues; otherwise nothing is stored or removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.lone_spark import found_by


@pytest.mark.shows("a partition value too long for a folder's name is rejected before the batch is stored")
@pytest.mark.shows("NUL, invalid UTF-8 and Hive's name of null are stored in a partition column as U+FFFD or null")
def test_each_message_is_a_row_or_a_dead_letter_or_the_batch_is_rejected(short_dir: Path) -> None:
    found = found_by("marking_transforms.py", short_dir)

    assert found["none"] == {"rows": [0, 1, 2, 3], "dead": []}, "of any timestamp and value"
    assert found["dropped"] == {"rows": [], "dead": []}
    assert found["marked"] == {"rows": [0, 2], "dead": [[1, "no \ufffd"], [3, "no \ufffd"]]}
    assert "marks every row: its column _kctl_error is never null" in found["every"]["error"]
    for name in ("moved", "lost"):
        assert "of them are not in the batch: marked rows must keep topic, partition, offset" in found[name]["error"]
    assert sorted(found["partitions"]["rows"]) == [0, 1, 2, 3]
    assert found["unfit"] == ["a\ufffdb", "\ufffd", "\ufffd", None, None]
    for name, size in (("long", 248), ("long_escaped", 249)):
        assert (
            f"{size} bytes in country, by which the table is partitioned, and there is room for 247"
            in (found[name]["error"])
        )
        assert found[name]["left"] == []
    for case, count in ("lost_rows", "1 row"), ("lost_dead_letters", "3 rows"):
        why, stored = found[case]
        assert why.startswith(f"Spark has written {count} into "), case
        assert ", and the files there have 0: nothing was stored" in why, case
        assert (stored["rows"], stored["stored"]) == (0, 0), case
    assert found["lost_dead_letters"][1]["dead"] == 0
    why, stored = found["lost_put_back"]
    assert why is not None, "the session is set to ignore files that are gone"
    assert stored == {"rows": 1, "stored": 4, "dead": 3}
    assert found["tried_again"] == {"rows": [0], "dead": [[1, "no"], [2, "no"], [3, "no"]]}, "x and y of the first try"
