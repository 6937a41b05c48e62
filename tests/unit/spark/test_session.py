import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from py4j.protocol import INPUT_CONVERTER
from pyspark.sql import types as _  # noqa: F401 - adds its converters

from kctl_agent.spark.driver import ApplicationEnded, OwnDriver
from kctl_agent.spark.gateway import exported
from kctl_agent.spark.session import LC_ALL, UTF8, java_options
from kctl_agent.spark.without_pandas import convert_without_pandas
from tests.unit.worker.query.frames import arrow


def test_the_options_of_the_user_come_last(tmp_path: Path) -> None:
    words = shlex.split(java_options(tmp_path / "with a space", "-Xss4m -XX:Tier4BackEdgeThreshold=40000"))

    assert f"-Djava.io.tmpdir={tmp_path}/with a space" in words
    assert "-XX:+ExitOnOutOfMemoryError" in words
    assert words[-2:] == ["-Xss4m", "-XX:Tier4BackEdgeThreshold=40000"]


@pytest.mark.parametrize("given", [None, "C"])
def test_children_have_utf8_and_this_process_its_own(monkeypatch: pytest.MonkeyPatch, given: str | None) -> None:
    monkeypatch.delenv("LC_ALL", raising=False)
    if given is not None:
        monkeypatch.setenv("LC_ALL", given)

    with exported(LC_ALL, UTF8):
        assert os.environ["LC_ALL"] == "C.UTF-8"

    assert os.environ.get("LC_ALL") == given


def test_a_worker_whose_application_the_cluster_has_ended_ends_for_another_one() -> None:
    context = SimpleNamespace(isStopped=lambda: False)
    spark = SimpleNamespace(master="spark://one:7077", _jsc=SimpleNamespace(sc=lambda: context))
    driver = OwnDriver(SimpleNamespace())  # type: ignore[arg-type]
    driver.session = SimpleNamespace(sparkContext=spark)
    driver.check()

    context.isStopped = lambda: True
    with pytest.raises(ApplicationEnded, match="the cluster spark://one:7077 has ended this application"):
        driver.check()


def run(code: str, given: bytes = b"") -> str:
    done = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, check=True)
    return done.stdout.decode().strip()


def test_py4j_looks_at_arguments_without_importing_pandas() -> None:
    code = (
        "import sys\n"
        "from kctl_agent.spark.without_pandas import convert_without_pandas\n"
        "convert_without_pandas()\n"
        "from py4j.protocol import INPUT_CONVERTER\n"
        "print(*[each.can_convert('text') for each in INPUT_CONVERTER])\n"
        "print('pandas' in sys.modules)\n"
    )
    answers, imported = run(code).splitlines()

    assert "True" not in answers
    assert imported == "False"


@pytest.mark.parametrize("value", [np.arange(3), np.int64(3)], ids=["array", "scalar"])
def test_values_of_numpy_are_still_converted(monkeypatch: pytest.MonkeyPatch, value: object) -> None:
    converters = list(INPUT_CONVERTER)
    monkeypatch.setattr("py4j.protocol.INPUT_CONVERTER", converters)
    convert_without_pandas()

    which = next(each for each in converters if each.can_convert(value))

    assert type(which).__mro__[1].__name__.startswith("Numpy")


def test_a_task_stores_its_records_without_importing_pandas() -> None:
    code = (
        "import sys\n"
        "import pyarrow as pa\n"
        "from kctl_agent.storage.base import StoredOffset\n"
        "from tests.scratch_storage import ScratchStorage\n"
        "from kctl_agent.worker.query.put import BatchRange\n"
        "from kctl_agent.worker.query.put import PutJob, put_partitions\n"
        "storage = ScratchStorage(block_messages=3)\n"
        "storage.init_offsets([StoredOffset('t', 0, None, 0)])\n"
        "job = PutJob(storage, {('t', 0): BatchRange(0, 10, 1, None)})\n"
        "for result in put_partitions(job, pa.ipc.open_stream(sys.stdin.buffer)):\n"
        "    print(result.column(3)[0], 'pandas' in sys.modules)\n"
    )
    batch = arrow([5, 6, 7])
    nulls = pa.array([b"k", None, b"l"], pa.binary())
    batch = batch.set_column(batch.schema.get_field_index("key"), "key", nulls)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)

    assert run(code, sink.getvalue().to_pybytes()) == "3 False"
