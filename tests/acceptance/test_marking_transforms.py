"""Each marked message becomes a row or a dead letter, however the transform marks it: kctl reads what Spark wrote, and
Spark what kctl requeues; otherwise nothing is stored or removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.lone_spark import found_by
from tests.acceptance.requeued_rows import MANY

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def found(shared_dir: Path) -> Any:
    return found_by("marking_transforms.py", shared_dir)


@pytest.mark.shows("a partition value too long for a folder's name is rejected before the batch is stored")
@pytest.mark.shows("NUL, invalid UTF-8 and Hive's name of null are stored in a partition column as U+FFFD or null")
def test_each_message_is_a_row_or_a_dead_letter_or_the_batch_is_rejected(found: Any) -> None:
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


@pytest.mark.shows("a JVM names files by UTF-8 if the machine's locale is another")
def test_a_jvm_of_kctl_has_utf8_for_names_and_all_else_the_locale_of_the_machine(found: Any) -> None:
    assert found["locales"] == ["UTF-8", "C", "C"]


@pytest.mark.shows("a transform that drops offsets or moves records is rejected")
def test_a_transform_that_drops_offsets_or_moves_records_is_rejected(found: Any) -> None:
    moves, drops = found["refused"]

    assert moves.startswith("the transform shuffles moves records (Repartition);")
    assert drops.startswith("the transform drops_offsets drops offset; it must")


@pytest.mark.shows("dead letters of a table go through Spark again unchanged, each copy of a message separately")
def test_thousands_are_requeued_unchanged_each_copy_of_a_message_separately(found: Any) -> None:
    found = found["requeued"]
    assert found["reported"] == [
        f"{MANY + 4} dead letters requeued, {MANY + 2} rows stored in the table; 2 messages of them could not be read "
        "again",
        "None",
    ]
    assert found["first"].pop("timestamp").startswith("datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=")
    assert found["first"] == {
        "topic": "'t'",
        "partition": "0",
        "offset": "1",
        "timestampType": "0",
        "key": "b'\\xfe'",
        "value": "b'1'",
        "headers": "[{'key': 'h', 'value': b'\\xff'}, {'key': 'h', 'value': None}]",
    }
    assert found["offsets"] == [1, 3, *range(10, 10 + MANY)]
    assert sorted(found["kept"]) == [[2, "b'x'", 2, "no number"], [3, "b'bad'", 2, "no number"]]
