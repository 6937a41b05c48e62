from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from kctl_agent.errors import StorageError
from kctl_agent.process.bootstrap import BootstrapError
from kctl_agent.storage.base import Storage, StorageUnusable, Writer
from kctl_agent.storage.chunk import Chunk, GapRefused, Put, StoredOffset
from kctl_agent.storage.file import FileStorage
from kctl_agent.storage.file.writer import FileWriter
from kctl_agent.worker.query.batch_failure import MOVED, OF_RECORD, BatchFailure, TaskFailed, failure
from kctl_agent.worker.query.batch_put import task_count
from kctl_agent.worker.query.lake_put import check_file_names
from kctl_agent.worker.query.marked_rows import ERROR, check_marks
from kctl_agent.worker.query.put import BadOrder, BatchRange, PutJob, put_in_task, put_partitions
from tests.conformance.given import stored
from tests.scratch_storage import ScratchStorage
from tests.unit.worker.query.frames import arrow


@pytest.fixture
def storage() -> ScratchStorage:
    storage = ScratchStorage(block_messages=3)
    storage.init_offsets([StoredOffset("t", 0, None, 0)])
    return storage


def put(storage: Storage, batches: Iterable[pa.RecordBatch]) -> list[dict[str, object]]:
    job = PutJob(storage, {("t", partition): BatchRange(0, 10, 1, None) for partition in (0, 1)})
    return [row for result in put_partitions(job, iter(batches)) for row in result.to_pylist()]


def in_portions(storage: ScratchStorage, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    def portions(self: Writer, chunks: Sequence[Chunk]) -> Iterator[Sequence[Chunk]]:
        for chunk in chunks:
            begin = chunk.start
            for columns in chunk.columns.split(size):
                end = int(columns.offsets[-1]) + 1
                yield [replace(chunk, start=begin, end=end, columns=columns)]
                begin = end

    monkeypatch.setattr(type(storage.writer()), "portions", portions)


def test_a_task_continues_after_its_first_portion(storage: ScratchStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    put(storage, [arrow([0, 1, 2, 3])])
    in_portions(storage, monkeypatch, 4)

    (row,) = put(storage, [arrow([0, 1, 2, 3, 4, 5])])

    assert stored(storage) == [0, 1, 2, 3, 4, 5]
    assert row["stored"] == 2


def test_a_task_reads_partition_after_partition(storage: ScratchStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.init_offsets([StoredOffset("t", 1, None, 5)])
    sizes: list[int] = []
    writes = FileWriter.put_all

    def counted(writer: FileWriter, chunks: Sequence[Chunk]) -> list[Put]:
        sizes.append(len(chunks))
        return writes(writer, chunks)

    monkeypatch.setattr(FileWriter, "put_all", counted)

    zero, one = put(storage, [arrow([0, 1]), arrow([2, 5, 6, 7], partitions=[0, 1, 1, 1]), arrow([8], partitions=[1])])

    assert sizes == [1, 2, 1]
    reached = storage.stored_offsets([("t", 0), ("t", 1)])
    assert (reached["t", 0].next, reached["t", 1].next) == (3, 9)
    assert [list(row.values()) for row in (zero, one)] == [["t", 0, 2, 3, 20], ["t", 1, 8, 4, 80]]


def test_a_batch_that_cannot_be_read_fails_the_task_behind_what_was_stored(storage: ScratchStorage) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield arrow([0, 1])
        raise EOFError("the JVM is gone")

    with pytest.raises(EOFError, match="the JVM is gone"):
        put(storage, batches())

    assert stored(storage) == [0, 1]


@pytest.mark.parametrize(
    ("batches", "complaint"),
    [
        ([arrow([0, 1], topics=[None, None])], "other topics than t; the transform must not change topic or partition"),
        ([arrow([0, 1], partitions=[7, 7])], "t-7, which this worker does not read; the transform must not change"),
        ([arrow([0, 0, 1], partitions=[0, 1, 0])], "t-0 came before and after those of another partition"),
        ([arrow([0]), arrow([0], partitions=[1]), arrow([1])], "t-0 came before and after those of another partition"),
        ([arrow([1, 0])], "out of offset order"),
        ([arrow([0, 1]), arrow([1])], "out of offset order"),
    ],
)
def test_moved_records_are_rejected(storage: ScratchStorage, batches: list[pa.RecordBatch], complaint: str) -> None:
    storage.init_offsets([StoredOffset("t", 1, None, 0)])

    with pytest.raises(BadOrder, match=complaint):
        put(storage, batches)


@pytest.mark.parametrize(
    ("sizes", "at_a_time", "tasks"),
    [
        ([], 2, 0),
        ([500], 2, 1),
        ([500] * 8, 2, 2),
        ([120, 80, 100, 90, 110, 100, 100, 100], 2, 2),
        ([50] * 400, 2, 2),
        ([50] * 400, 16, 16),
        ([50] * 8, 16, 8),
        ([19_000, *[2] * 399], 2, 8),
        ([250, *[50] * 399], 2, 2),
        ([19_000, 1], 4, 2),
    ],
)
def test_tasks_are_as_many_as_run_or_as_partitions_demand(sizes: list[int], at_a_time: int, tasks: int) -> None:
    assert task_count(sizes, at_a_time) == tasks
    assert task_count(sizes, at_a_time, 25_000) == min(tasks, -(-sum(sizes) // 25_000)), "with as many records at least"


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


MESSAGE = [("topic", "string"), ("partition", "int"), ("offset", "bigint")]


def rows(dtypes: list[tuple[str, str]], *, nullable: bool = True) -> Any:
    fields = [SimpleNamespace(name=name, nullable=nullable) for name, _ in dtypes]
    return SimpleNamespace(dtypes=dtypes, schema=SimpleNamespace(fields=fields))


@pytest.mark.parametrize(
    ("dtypes", "nullable", "why"),
    [
        ([*MESSAGE[:2], (ERROR, "string")], True, "drops offset: it must keep topic, partition, offset"),
        ([*MESSAGE, (ERROR, "int")], True, "its column _kctl_error must be string, and it is int"),
        ([MESSAGE[0], ("partition", "string"), MESSAGE[2], (ERROR, "string")], True, "column partition must be int"),
        ([*MESSAGE, (ERROR, "string")], False, "marks every row"),
    ],
)
def test_marks_that_name_no_message_are_rejected(dtypes: list[tuple[str, str]], nullable: bool, why: str) -> None:
    check_marks("items:parsed", rows([*MESSAGE, ("id", "bigint"), (ERROR, "string")]))

    with pytest.raises(BootstrapError, match=why):
        check_marks("items:parsed", rows(dtypes, nullable=nullable))


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
def test_errors_of_a_storage_are_known_wherever_they_were_met(error: StorageError, is_storage: bool, code: str) -> None:
    expected = BatchFailure(f"{type(error).__name__}: {error}", is_storage, code)

    assert in_driver(TaskFailed(TOKEN, error)) == expected
    assert failure(error, TOKEN) == expected
    assert (expected.code in MOVED) is not is_storage
    assert expected.code not in OF_RECORD
    refused = in_driver(TaskFailed(TOKEN, BadOrder("of orders-3 came out of offset order")))
    assert (refused.code in MOVED, refused.code in OF_RECORD) == (False, True)


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
