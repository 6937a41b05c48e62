"""A JVM writes file names correctly if the machine's locale is not UTF-8."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.lone_spark import found_by

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]


def test_a_jvm_of_kctls_names_files_by_utf8_and_tables_are_not_written_by_one_that_does_not(short_dir: Path) -> None:
    found = found_by("jvm_locale.py", short_dir)

    assert found["of_kctl"] == {"java": "UTF-8", "here": "C", "python": ["C"], "rows": [0, 1, 2, 3]}
    assert found["of_others"].startswith(
        "Spark's driver names files by ANSI_X3.4-1968, and those of a table need UTF-8"
    )
