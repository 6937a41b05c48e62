from __future__ import annotations

import pytest

from kctl_agent.process.bootstrap import BootstrapError
from kctl_agent.worker.query.lake_put import check_file_names


@pytest.mark.parametrize(
    ("java", "python", "why"),
    [
        ("ANSI_X3.4-1968", "utf-8", "Spark's driver names files by ANSI_X3.4-1968, and those of a table need UTF-8"),
        ("UTF-8", "iso8859-1", "Python names files by iso8859-1"),
    ],
)
def test_tables_are_not_written_where_files_are_not_named_by_utf8(java: str, python: str, why: str) -> None:
    check_file_names("UTF-8", "utf-8")

    with pytest.raises(BootstrapError, match=why):
        check_file_names(java, python)
