"""Rows of every type in a table, and predicates, for tests of what readers skip by statistics.

Dates are days since 1970, times microseconds since then.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import strategies as st

from kctl_agent.storage.chunk import Advance
from kctl_agent.storage.lake.delta.files import OWN_FOOTER
from kctl_agent.storage.lake.storage import LakeStorage
from tests import lake_tables

FARTHEST_DAY, FARTHEST_MICROSECOND = 4_000_000, 300_000_000_000_000_000
"""In the years 12921 and 11476. The same distance before 1970 is before the year 1."""
LAST = "\U0010ffff"


@dataclass(frozen=True)
class Kind:
    spark: str
    arrow: pa.DataType
    values: st.SearchStrategy[Any]
    sql: str

    def array(self, values: Sequence[Any]) -> pa.Array:
        if pa.types.is_temporal(self.arrow):
            return pa.array(values, pa.int32() if self.arrow == pa.date32() else pa.int64()).cast(self.arrow)
        return pa.array(values, self.arrow)


def _cast(type_: str) -> str:
    return f"cast('{{}}' as {type_})"


def _decimal(digits: int, scale: int) -> str:
    return f"arrow_cast('{{}}', 'Decimal128({digits}, {scale})')"


def _whole(bits: int) -> st.SearchStrategy[int]:
    return st.one_of(st.integers(-3, 3), st.integers(-(1 << bits - 1), (1 << bits - 1) - 1))


def _decimals(scale: int, digits: int) -> st.SearchStrategy[Decimal]:
    most = 10**digits - 1
    numbers = st.one_of(st.integers(-3, 3), st.integers(-most, most), st.integers(most - 1, most))
    return numbers.map(lambda number: Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)))


_TEXTS = st.builds(
    str.__add__, st.sampled_from(["", "a" * 31, LAST * 32]), st.text("abz'é\uffff\U0001f600" + LAST, max_size=3)
)
_DAYS = st.one_of(st.integers(-3, 3), st.integers(-FARTHEST_DAY, FARTHEST_DAY))
_MICROSECONDS = st.one_of(st.integers(-3, 3), st.integers(-FARTHEST_MICROSECOND, FARTHEST_MICROSECOND))
_STRUCT = {"y": "x", "n": "l", "t": "s"}
KINDS = {
    "b": Kind("boolean", pa.bool_(), st.booleans(), _cast("boolean")),
    "i8": Kind("byte", pa.int8(), _whole(8), _cast("tinyint")),
    "i16": Kind("short", pa.int16(), _whole(16), _cast("smallint")),
    "i": Kind("integer", pa.int32(), _whole(32), _cast("int")),
    "l": Kind("long", pa.int64(), _whole(64), _cast("bigint")),
    "f": Kind("float", pa.float32(), st.floats(width=32), _cast("real")),
    "x": Kind("double", pa.float64(), st.floats(), _cast("double")),
    "d2": Kind("decimal(16,2)", pa.decimal128(16, 2), _decimals(2, 16), _decimal(16, 2)),
    "d0": Kind("decimal(38,0)", pa.decimal128(38, 0), _decimals(0, 38), _decimal(38, 0)),
    "d18": Kind("decimal(38,18)", pa.decimal128(38, 18), _decimals(18, 38), _decimal(38, 18)),
    "s": Kind("string", pa.string(), _TEXTS, "'{}'"),
    "bin": Kind("binary", pa.binary(), st.binary(max_size=3), "X'{}'"),
    "day": Kind("date", pa.date32(), _DAYS, "arrow_cast({}, 'Date32')"),
    "ts": Kind(
        "timestamp",
        pa.timestamp("us", "UTC"),
        _MICROSECONDS,
        """arrow_cast({}, 'Timestamp(Microsecond, Some("UTC"))')""",
    ),
    "ntz": Kind("timestamp_ntz", pa.timestamp("us"), _MICROSECONDS, "arrow_cast({}, 'Timestamp(Microsecond, None)')"),
}
_INNER = pa.struct([(name, KINDS[of].arrow) for name, of in _STRUCT.items()])
COLUMNS = pa.schema([("id", pa.int64()), *((name, kind.arrow) for name, kind in KINDS.items()), ("st", _INNER)])
PLACES = {name: name for name in KINDS} | {f"st.{name}": of for name, of in _STRUCT.items()}
"""Where a predicate may point, with the kind of the values."""
Rows = Mapping[str, Sequence[Any]]


def schema() -> str:
    inner = json.loads(lake_tables.schema(*((name, KINDS[of].spark) for name, of in _STRUCT.items())))
    return lake_tables.schema(("id", "long"), *((name, kind.spark) for name, kind in KINDS.items()), ("st", inner))


@st.composite
def rows_of(draw: st.DrawFn) -> Rows:
    count = draw(st.integers(1, 4))

    def column(kind: Kind) -> list[Any]:
        value = draw(st.sampled_from([st.none(), kind.values, st.one_of(st.none(), kind.values)]))
        return draw(st.lists(value, min_size=count, max_size=count))

    return {place: column(KINDS[of]) for place, of in PLACES.items()}


def arrow(rows: Rows, first_id: int) -> pa.Table:
    count = len(rows["l"])

    inner = pa.StructArray.from_arrays(
        [KINDS[of].array(rows[f"st.{name}"]) for name, of in _STRUCT.items()], fields=list(_INNER)
    )
    columns = [kind.array(rows[name]) for name, kind in KINDS.items()]
    return pa.Table.from_arrays([pa.array(range(first_id, first_id + count)), *columns, inner], schema=COLUMNS)


def opened(path: Path) -> LakeStorage:
    return lake_tables.opened(path, columns=schema(), start=0)


def stored(path: Path, files: Sequence[tuple[Rows, bool]]) -> LakeStorage:
    """Stores a batch for each file. An exact file has Spark's footer, without statistics for columns with NaN. Others
    have pyarrow's, which leave NaN out."""
    lake = opened(path)
    for number, (rows, is_exact) in enumerate(files):
        batch = lake.begin([Advance("t", 0, 1, number, number + 1)])
        Path(batch.folder.uri).mkdir()
        table = arrow(rows, 10 * number)
        ordered = [name for name in COLUMNS.names if name != "st" and not _has_nan(rows[name] if name != "id" else ())]
        inner = [f"st.{name}" for name in _STRUCT if not _has_nan(rows[f"st.{name}"])]
        statistics: Any = ordered + inner if is_exact else True
        with pq.ParquetWriter(Path(batch.folder.uri, "part-0.parquet"), COLUMNS, write_statistics=statistics) as writer:
            if is_exact:
                writer.add_key_value_metadata(OWN_FOOTER)
            writer.write_table(table)
        batch.commit()
    return lake


def _has_nan(values: Sequence[Any]) -> bool:
    return any(isinstance(value, float) and math.isnan(value) for value in values)


def stored_rows(path: Path) -> pa.Table:
    return pa.concat_tables([pq.ParquetFile(file).read() for file in path.glob("kctl-*/*.parquet")])


@dataclass(frozen=True)
class Predicate:
    place: str
    operator: str
    value: Any = None

    def sql(self) -> str:
        _, dot, inner = self.place.partition(".")
        column = f"st['{inner}']" if dot else self.place
        if self.value is None:
            return f"{column} {self.operator}"
        value = self.value
        if isinstance(value, bytes):
            value = value.hex()
        elif isinstance(value, str):
            value = value.replace("'", "''")
        elif isinstance(value, Decimal):
            value = format(value, "f")
        return f"{column} {self.operator} {KINDS[PLACES[self.place]].sql.format(value)}"

    def expression(self) -> pc.Expression:
        column = pc.field(*self.place.split("."))
        if self.value is None:
            return column.is_null() if self.operator == "is null" else column.is_valid()
        [value] = KINDS[PLACES[self.place]].array([self.value])
        compare = {"=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}[self.operator]
        found: pc.Expression = compare(column, value)
        return found


NAN = float("nan")
FAR = 2_932_897  # the first day of the year 10000
HIDDEN = {  # matches in the rows of HIDING that a compaction by delta-rs has hidden or left without a bound
    "a NaN": Predicate("x", ">", 100.0),
    "a NaN inside of a struct": Predicate("st.y", ">", 100.0),
    "a decimal beyond 64 bits": Predicate("d0", ">", Decimal(10**19)),
    "many digits behind the point": Predicate("d18", ">", Decimal(1)),
    "more digits than a double has": Predicate("d2", "=", Decimal("90071992547409.93")),
    "a day beyond year 9999": Predicate("day", ">=", FAR),
    "a character beyond U+100000": Predicate("s", "=", "\U0010ffff"),
}
_HIDDEN: dict[str, list[Any]] = {
    "x": [1.0, NAN],
    "st.y": [1.0, NAN],
    "d0": [Decimal(1), Decimal(10**20)],
    "d18": [Decimal("0.5"), Decimal("1.000000000000000001")],
    "d2": [Decimal("0.01"), Decimal("90071992547409.93")],
    "day": [0, FAR],
    "s": ["a", "\U0010ffff"],
}
HIDING: Rows = {place: _HIDDEN.get(place, [None, None]) for place in PLACES}


@st.composite
def predicates(draw: st.DrawFn, files: Sequence[Rows]) -> Predicate:
    place = draw(st.sampled_from(list(PLACES)))
    operator = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "is null", "is not null"]))
    if operator.startswith("is"):
        return Predicate(place, operator)
    there = [value for rows in files for value in rows[place] if value is not None]
    kind = KINDS[PLACES[place]]
    return Predicate(place, operator, draw(st.one_of(st.sampled_from(there), kind.values) if there else kind.values))


def has_bounds(stats: Mapping[str, Any], place: str) -> bool:
    """Also true if the file has no values."""
    is_null = bool(stats["nullCount"].get(place) == stats["numRecords"])
    return is_null or (place in stats["minValues"] and place in stats["maxValues"])
