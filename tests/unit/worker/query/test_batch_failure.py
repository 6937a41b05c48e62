from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl_agent.errors import StorageError
from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.chunk import GapRefused
from kctl_agent.storage.file import FileStorage
from kctl_agent.worker.query.batch_failure import BatchFailure, TaskFailed, failure
from kctl_agent.worker.query.put import BadOrder, PutJob, put_in_task

TOKEN = "5f2a"
SPARK = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times: "
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    '  File "/lib/worker.py", line 12, in main\n    process()\n'
    "{raised}\n\n\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(PythonRunner.scala:600)\n"
)


def in_driver(error: BaseException) -> BatchFailure:
    kind = type(error)
    return failure(RuntimeError(SPARK.format(raised=f"{kind.__module__}.{kind.__qualname__}: {error}")), TOKEN)


@pytest.mark.parametrize(
    ("error", "is_storage", "code"),
    [
        (StorageUnusable("orders-3 could not be stored: database or disk is full"), True, "storage_unusable"),
        (GapRefused("a range of orders-3 begins at 7"), False, "gap_refused"),
    ],
)
def test_an_unusable_storage_and_what_a_storage_rejects_are_known_by_their_types_wherever_they_were_noticed(
    error: StorageError, is_storage: bool, code: str
) -> None:
    expected = BatchFailure(f"{type(error).__name__}: {error}", is_storage, code)

    assert in_driver(TaskFailed(TOKEN, error)) == expected
    assert failure(error, TOKEN) == expected
    assert expected.is_moved is not is_storage
    assert not expected.may_be_of_record
    refused = in_driver(TaskFailed(TOKEN, BadOrder("of orders-3 came out of offset order")))
    assert (refused.is_moved, refused.may_be_of_record) == (False, True)


@pytest.mark.parametrize(
    "text", ["StorageUnusable: no price", "x storage_unusable y", "\nTaskFailed: 1 storage_unusable y"]
)
def test_a_record_that_an_exception_quotes_cannot_pass_for_the_storage(text: str) -> None:
    assert not in_driver(ValueError(text)).is_storage


def test_an_exception_of_the_users_code_is_shown_with_its_place_and_one_of_java_with_its_first_line() -> None:
    trace = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "/srv/fleet/transform.py", line 2, in price\n    return 1 / int(value)\n'
        '  File "/venv/lib/python3.11/site-packages/pyspark/worker.py", line 90, in wrapped\n    process()\n'
        "ZeroDivisionError: division by zero\n"
    )

    java = (
        "An error occurred while calling o176.collectToPython.\n"
        ": org.apache.spark.sql.kafka010.KafkaIllegalStateException: Some data may have been lost;\n\tat org.x.Y(z)\n"
    )

    assert failure(RuntimeError(trace), TOKEN).text == "ZeroDivisionError: division by zero (transform.py:2)"
    assert failure(RuntimeError(java), TOKEN).text == "KafkaIllegalStateException: Some data may have been lost;"


def test_a_task_returns_what_its_storage_raised(tmp_path: Path) -> None:
    def nothing() -> Iterator[object]:
        yield from ()

    job = PutJob(FileStorage(tmp_path / "gone" / "storage.sqlite"), {}, TOKEN)
    with pytest.raises(TaskFailed, match=rf"^{TOKEN} storage_unusable StorageUnusable: .*No such file") as raised:
        list(put_in_task(job, nothing()))

    assert in_driver(raised.value).is_storage
