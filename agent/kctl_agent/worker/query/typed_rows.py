"""Decodes messages' Avro values into typed columns, with one call of Spark's `from_avro` for each schema.

A message names its schema, but Spark needs all schemas before the batch runs. So the driver runs the batch with the
schemas that it knows. If the batch has other schemas, the driver asks the registry. If the registry has any of them,
the driver runs the batch again.
"""

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import StructType

from kctl_agent.errors import RegistryUnusable, Undecodable
from kctl_agent.schemas.framing import NOT_FRAMED, SIZES, VALUE_HEADER
from kctl_agent.schemas.registry import Registry, Schema
from kctl_agent.storage.base import TableRefused
from kctl_agent.storage.lake.delta.schema import fitted
from kctl_agent.storage.lake.table_storage import TableStorage
from kctl_agent.worker.query.marked_rows import ERROR, KAFKA, PREFIX

log = logging.getLogger(__name__)

OK = "_kctl_ok"
OPTIONS = {"mode": "PERMISSIVE", "datetimeRebaseMode": "CORRECTED"}
"""Values that cannot be read become null. Days before 1582 are in today's calendar, as in other readers."""
RESERVED = ("_kafka", "_kctl")


class Known(NamedTuple):
    """Schemas from the registry. Threads share this object: do not change it, replace it."""

    reader: Schema | None = None
    writers: Mapping[str, Sequence[bytes]] = MappingProxyType({})
    """Prefixes by the text of their schema."""
    labels: Mapping[bytes, str] = MappingProxyType({})
    unfit: Mapping[bytes, str] = MappingProxyType({})  # errors of messages whose schema is not Avro

    @property
    def label(self) -> str:
        return "" if self.reader is None else f"version {self.reader.version} of {self.reader.label}"


class Columns(NamedTuple):
    context: SparkContext
    known: Known
    fields: Sequence[str]
    record: Column
    error: Column
    unknown: Column


class TypedRows:
    """Decodes the values of `topics`. Any thread may use it."""

    def __init__(self, registry: Registry, topics: Sequence[str], happened: Callable[[str, str], object]) -> None:
        self._registry = registry
        self._happened = happened
        self._left_out: list[str] = []
        self._subjects = [f"{topic}-value" for topic in topics]
        self._known = Known()
        self._lock = threading.Lock()  # held while `_known` is replaced
        self._comparisons: dict[tuple[str, str], tuple[bool, str]] = {}
        self._columns: Columns | None = None

    @property
    def known_ids(self) -> int:
        return len(self._known.labels)

    def begin(self) -> None:
        """Calls `refresh`. If that fails, keeps the previous schema. Raises RegistryUnusable if there is none."""
        try:
            self.refresh()
        except RegistryUnusable as error:
            if self._known.reader is None:
                raise
            log.warning("%s; messages are read by %s", error, self._known.label)

    def refresh(self) -> None:
        """Reads the newest schema of each topic. Raises RegistryUnusable, also if a schema cannot become columns."""
        try:
            found = [self._registry.newest(subject) for subject in self._subjects]
        except Undecodable as error:
            raise RegistryUnusable(f"no columns can be made: {error}") from error
        if len(names := sorted({each.name for each in found})) > 1:
            raise RegistryUnusable(
                f"the topics have different records ({', '.join(names)}), but a table can have only one: use a fleet "
                "for each"
            )
        newest = max(found, key=lambda each: (each.id or 0, each.version or 0))
        _check_names(newest)
        with self._lock:
            self._known = self._known._replace(reader=newest)

    def fit(self, storage: TableStorage, schema: str) -> StructType | None:
        """Adds missing columns of `schema` (Spark's JSON) to the table, if `storage.merge_schema` is set. Returns the
        columns to write, with the table's names and types, or None if `schema` fits unchanged. Raises StorageUnusable,
        or RegistryUnusable if a type does not fit the table."""
        fields, label = json.loads(schema)["fields"], self._known.label
        there = storage.columns()
        try:
            made, left_out = (fields, []) if there is None else fitted(there, fields, may_add=storage.merge_schema)
            storage.fit(json.dumps({"type": "struct", "fields": made}))
        except TableRefused as error:
            raise RegistryUnusable(
                f"{label} does not fit the table: {error}; register a version that fits, change the column in "
                "workers.transform, or fill another table (storage.uri)"
            ) from error
        if left_out and left_out != self._left_out:
            remedy = "" if storage.merge_schema else "; storage.merge_schema adds columns"
            self._happened("columns_left_out", f"the table does not have {', '.join(left_out)} of {label}{remedy}")
        self._left_out = left_out
        return None if made == fields else StructType.fromJson({"fields": made})

    def learn(self, rows: DataFrame) -> bool:
        """Fetches unknown schemas of these rows. Returns whether the registry has any. Raises RegistryUnusable."""
        prefixes = [bytes(row[0]) for row in _framed(rows).select(PREFIX).distinct().collect() if row[0]]
        new = [each for each in prefixes if each not in self._known.labels]
        with ThreadPoolExecutor(max_workers=8) as pool:
            found = [each for each in pool.map(self._found, new) if each is not None]
        if found:
            self.refresh()  # its newest version may be that of a new id
        with self._lock:
            writers, labels, unfit = dict(self._known.writers), dict(self._known.labels), dict(self._known.unfit)
            for prefix, label, schema in found:
                labels[prefix] = label
                if isinstance(schema, Undecodable):
                    unfit[prefix] = str(schema)
                else:
                    writers[schema.text] = *writers.get(schema.text, ()), prefix
            self._known = self._known._replace(writers=writers, labels=labels, unfit=unfit)
        return bool(found)

    def _found(self, prefix: bytes) -> tuple[bytes, str, Schema | Undecodable] | None:
        try:
            schema = self._registry.by_prefix(prefix)
        except Undecodable as error:
            if str(error).startswith("UnknownSchema"):
                return None
            return prefix, "", error
        return prefix, f"{schema.name} ({schema.label})", schema

    def decoded(self, rows: DataFrame) -> DataFrame:
        """Returns Avro records' fields as columns. `_kafka` has the columns of `rows`. `_kctl_error` has the error if
        decoding fails. `_kctl_prefix` has the prefix of a value with an unknown schema. Raises RegistryUnusable."""
        framed = _framed(rows, f.struct("*").alias(KAFKA))
        try:
            made = self._columns_of(rows.sparkSession)
            decoded = framed.select(KAFKA, PREFIX, made.record)
        except (PySparkException, Py4JJavaError) as error:
            raise RegistryUnusable(f"{self._known.label} cannot become columns: {_sentence(error)}") from error
        return decoded.select(*made.fields, KAFKA, made.error, made.unknown)

    def _columns_of(self, session: SparkSession) -> Columns:
        if self._known.reader is None:
            self.refresh()
        context, known, kept = session.sparkContext, self._known, self._columns
        if kept is None or kept.context is not context or kept.known is not known:
            assert known.reader is not None
            fields = [field["name"] for field in json.loads(known.reader.text)["fields"]]
            record, mismatched = self._record(session, known.reader, known.writers)
            error = _error(known, mismatched).alias(ERROR)
            kept = Columns(context, known, fields, f.inline(f.array(record)), error, _unknown(known).alias(PREFIX))
            self._columns = kept
        return kept

    def _record(
        self, session: SparkSession, schema: Schema, writers: Mapping[str, Sequence[bytes]]
    ) -> tuple[Column, dict[bytes, str]]:
        reader = json.loads(schema.text, object_hook=_without_time)
        reader["fields"] = [*reader["fields"], {"name": OK, "type": "boolean", "default": True}]
        text = json.dumps(reader)
        payload = f.expr(f"if(header is null, substring(value, octet_length({PREFIX}) + 1), value)")
        mismatched: dict[bytes, str] = {}  # by prefix: why `schema` cannot read some or all records
        made: Any = f
        for writer, prefixes in writers.items():
            is_usable, why = self._compared(session, writer, text)
            mismatched |= dict.fromkeys(prefixes, why) if why else {}
            if is_usable:
                record = from_avro(payload, writer, {**OPTIONS, "avroSchema": text})
                made = made.when(_is_one_of(prefixes), record)
        none = from_avro(f.lit(None).cast("binary"), text, OPTIONS)
        return none if made is f else made.otherwise(none), mismatched

    def _compared(self, session: SparkSession, writer: str, reader: str) -> tuple[bool, str]:
        key = writer, reader
        if key not in self._comparisons:
            self._comparisons[key] = _compared(session, writer, reader)
        return self._comparisons[key]


def _error(known: Known, mismatched: Mapping[bytes, str]) -> Column:
    none = f.lit(None).cast("string")
    error = f.when(f.col(f"{KAFKA}.value").isNull() | f.coalesce(OK, f.lit(False)), none)
    error = error.when(f.col(PREFIX).isNull(), f.lit(NOT_FRAMED))
    for prefix, why in known.unfit.items():
        error = error.when(f.col(PREFIX) == f.lit(prefix), f.lit(why))
    for prefix, label in known.labels.items():
        mismatch = mismatched.get(prefix)
        text = f"SchemaMismatch: {known.label} cannot read it: {mismatch}" if mismatch else f"BadRecord: not {label}"
        error = error.when(f.col(PREFIX) == f.lit(prefix), f.lit(text))
    return error.otherwise(f.concat(f.lit("UnknownSchema: the schema registry does not know "), _named(PREFIX)))


def _unknown(known: Known) -> Column:
    return f.when(~_is_one_of(list(known.labels)), f.col(PREFIX)) if known.labels else f.col(PREFIX)


def _framed(rows: DataFrame, *more: Column) -> DataFrame:
    start = "coalesce(header, value)"
    cases = " ".join(
        f"when substring({start}, 1, 1) = X'{magic:02}' and octet_length({start}) >= {size} "
        f"then substring({start}, 1, {size})"
        for magic, size in SIZES.items()
    )
    return rows.select("value", _header(VALUE_HEADER).alias("header"), *more).select(
        "*", f.expr(f"case {cases} end").alias(PREFIX)
    )


def unframed(rows: DataFrame) -> DataFrame:
    """Removes the prefixes that name the schemas of values."""
    header = _header(VALUE_HEADER)
    cases = " ".join(
        f"when substring(value, 1, 1) = X'{magic:02}' then substring(value, {size + 1})"
        for magic, size in SIZES.items()
    )
    payload = f.when(header.isNotNull(), f.col("value")).otherwise(f.expr(f"case {cases} else value end"))
    return rows.withColumn("value", payload)


def _header(name: str) -> Column:
    # The last one. With `filter`, Spark would spend a tenth of the decoding's time on it.
    return f.expr(f"get(reverse(headers.value), int(array_position(reverse(headers.key), '{name}')) - 1)")


def _is_one_of(prefixes: Sequence[bytes]) -> Column:
    return reduce(or_, (f.col(PREFIX) == f.lit(each) for each in prefixes))


def _named(prefix: str) -> Column:
    number, digits = f"conv(hex(substring({prefix}, 2)), 16, 10)", f"lower(hex(substring({prefix}, 2)))"
    guid = f"regexp_replace({digits}, '^(.{{8}})(.{{4}})(.{{4}})(.{{4}})', '$1-$2-$3-$4-')"
    return f.expr(f"if(substring({prefix}, 1, 1) = X'00', concat('id ', {number}), concat('GUID ', {guid}))")


def _compared(session: SparkSession, writer: str, reader: str) -> tuple[bool, str]:
    avro: Any = session._jvm.org.apache.avro  # noqa: SLF001 - PySpark has no name for it
    try:
        read, written = (getattr(avro, "Schema$Parser")().parse(text) for text in (reader, writer))
        pair = avro.SchemaCompatibility.checkReaderWriterCompatibility(read, written)
    except Py4JJavaError as error:
        return False, _sentence(error)
    if written.getName() != read.getName() and not read.getAliases().contains(written.getFullName()):
        return False, f"the record is {written.getFullName()}"
    found = pair.getResult().getIncompatibilities()
    return True, "" if found.isEmpty() else str(found.get(0).getMessage())


def _without_time(part: dict[str, Any]) -> dict[str, Any]:
    # Delta has no time of day.
    return {name: value for name, value in part.items() if (name, value) != ("logicalType", "time-micros")}


def _sentence(error: PySparkException | Py4JJavaError) -> str:
    text = str(error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error)
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)


def _check_names(schema: Schema) -> None:
    found: Mapping[str, Any] = json.loads(schema.text) if schema.text.startswith("{") else {}
    if found.get("type") != "record":
        raise RegistryUnusable(f"{schema.label} is not a record, whose fields would be the columns of the table")
    names = [field["name"] for field in found["fields"]]
    lower = [name.lower() for name in names]
    if twice := [name for at, name in enumerate(names) if name.lower() in lower[:at]]:
        raise RegistryUnusable(
            f"{schema.label} has a field {twice[0]}, and another field whose name differs only in case"
        )
    if taken := [name for name in names if name.lower().startswith(RESERVED)]:
        raise RegistryUnusable(f"{schema.label} has a field {taken[0]}, a name that kctl needs: rename it")
