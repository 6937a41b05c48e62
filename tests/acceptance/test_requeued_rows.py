"""Dead letters of a table go through a real Spark again, unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.lone_spark import found_by
from tests.acceptance.requeued_rows import MANY

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]


def test_thousands_are_requeued_unchanged_each_copy_of_a_message_separately(short_dir: Path) -> None:
    found = found_by("requeued_rows.py", short_dir)

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
