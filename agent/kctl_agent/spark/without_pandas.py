"""Makes Spark calls without importing pandas. The import would take 0.8 s of CPU time and 30 MB in every process."""

# ruff: noqa: SLF001 - PySpark has no public names for what is done here
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def convert_without_pandas() -> None:
    """Replaces PySpark 4.2's NumPy converters, because they import `pyspark.testing.utils`, which imports pandas. Call
    it before the first Py4J call. It is idempotent."""
    from py4j.protocol import INPUT_CONVERTER
    from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

    class Scalar(NumpyScalarConverter):  # type: ignore[misc]
        def can_convert(self, obj: Any) -> bool:
            numpy = sys.modules.get("numpy")
            return numpy is not None and isinstance(obj, numpy.generic)

    class Array(NumpyArrayConverter):  # type: ignore[misc]
        def can_convert(self, obj: Any) -> bool:
            numpy = sys.modules.get("numpy")
            return numpy is not None and isinstance(obj, numpy.ndarray) and obj.ndim == 1

    ours = {NumpyScalarConverter: Scalar, NumpyArrayConverter: Array}
    INPUT_CONVERTER[:] = [ours[type(each)]() if type(each) in ours else each for each in INPUT_CONVERTER]


def map_in_arrow(frame: DataFrame, task: Callable[[Iterator[Any]], Iterator[Any]], schema: str) -> DataFrame:
    """Like `frame.mapInArrow(task, schema)`, without PySpark's check of pandas' version
    (pyspark/sql/pandas/map_ops.py)."""
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.functions import vectorized_udf  # type: ignore[attr-defined]
    from pyspark.util import PythonEvalType

    udf = vectorized_udf(task, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    mapped = frame._jdf.mapInArrow(udf(*[frame[name] for name in frame.columns])._jc, False, None)
    return DataFrame(mapped, frame.sparkSession)
