"""kctl finds what Spark has written, and Spark what it is to put back; else nothing is stored or removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.lone_spark import found_by

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


def test_where_files_have_other_rows_than_spark_has_counted_nothing_is_stored(short_dir: Path) -> None:
    found = found_by("whole_batches.py", short_dir)

    for case, count in ("rows", "1 row"), ("dead_letters", "3 rows"):
        why, stored = found[case]
        assert why.startswith(f"Spark has written {count} into "), case
        assert ", and the files there have 0: nothing was stored" in why, case
        assert (stored["rows"], stored["stored"]) == (0, 0), case
    assert found["dead_letters"][1]["dead"] == 0
    why, stored = found["put_back"]
    assert why is not None, "the session is set to ignore files that are gone"
    assert stored == {"rows": 1, "stored": 4, "dead": 3}
