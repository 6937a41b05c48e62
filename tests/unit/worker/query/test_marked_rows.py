from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kctl_agent.process.bootstrap import BootstrapError
from kctl_agent.worker.query.marked_rows import ERROR, check_marks

MESSAGE = [("topic", "string"), ("partition", "int"), ("offset", "bigint")]


def rows(dtypes: list[tuple[str, str]], *, nullable: bool = True) -> Any:
    fields = [SimpleNamespace(name=name, nullable=nullable) for name, _ in dtypes]
    return SimpleNamespace(dtypes=dtypes, schema=SimpleNamespace(fields=fields))


def test_marks_that_can_be_traced_to_messages_are_taken() -> None:
    check_marks("items:parsed", rows([*MESSAGE, ("id", "bigint"), (ERROR, "string")]))


def test_an_error_that_is_never_null_is_refused() -> None:
    with pytest.raises(BootstrapError, match="marks every row"):
        check_marks("items:parsed", rows([*MESSAGE, (ERROR, "string")], nullable=False))


@pytest.mark.parametrize(
    ("dtypes", "why"),
    [
        ([*MESSAGE[:2], (ERROR, "string")], "drops offset: it must keep topic, partition, offset"),
        ([*MESSAGE, (ERROR, "int")], "its column _kctl_error must be string, and it is int"),
        ([MESSAGE[0], ("partition", "string"), MESSAGE[2], (ERROR, "string")], "column partition must be int"),
    ],
)
def test_marks_that_cannot_be_traced_to_messages_are_refused(dtypes: list[tuple[str, str]], why: str) -> None:
    with pytest.raises(BootstrapError, match=why):
        check_marks("items:parsed", rows(dtypes))
