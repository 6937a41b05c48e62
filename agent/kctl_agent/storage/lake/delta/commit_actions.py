"""The actions of the Delta protocol in a commit of a batch or a compaction. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from kctl_agent.storage.lake.delta.files import DataFile, TableFile

ENGINE = "kctl"  # the writer in an entry's `commitInfo`: its entries are synced before they are visible


def append_actions(
    files: Sequence[DataFile], transactions: Mapping[str, int], partition_by: Sequence[str], now_ms: int
) -> Iterator[dict[str, Any]]:
    """Yields the actions of a commit that only adds files (a blind append)."""
    parameters = {"mode": "Append", "partitionBy": json.dumps(list(partition_by))}
    yield _info("WRITE", parameters, now_ms, isBlindAppend=True)
    yield from _transactions(transactions)
    for file in files:
        yield _add(file, is_change=True)


def compaction_actions(
    removed: Sequence[TableFile], added: Sequence[DataFile], transactions: Mapping[str, int], now_ms: int
) -> Iterator[dict[str, Any]]:
    """Yields the actions that replace files or, without `added`, remove their rows. In both cases, Delta rejects a
    concurrent UPDATE or DELETE that has read a removed file."""
    is_delete = bool(removed) and not added
    operation = "DELETE" if is_delete else "OPTIMIZE"
    yield _info(operation, {"predicate": "[]"}, now_ms, isBlindAppend=False, kctl="compaction")
    yield from _transactions(transactions)
    for each in removed:
        more = {"deletionTimestamp": now_ms, "dataChange": is_delete, "extendedFileMetadata": True}
        yield {"remove": _file(each, each.path) | more}
    for file in added:
        yield _add(file, is_change=False)


def _info(operation: str, parameters: Mapping[str, str], now_ms: int, **more: Any) -> dict[str, Any]:
    common = {"timestamp": now_ms, "operation": operation, "operationParameters": parameters, "engineInfo": ENGINE}
    return {"commitInfo": common | more}


def _transactions(numbers: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for name, number in numbers.items():
        yield {"txn": {"appId": name, "version": number}}


def _add(file: DataFile, *, is_change: bool) -> dict[str, Any]:
    more = {"modificationTime": file.modified_ms, "dataChange": is_change, "stats": file.stats}
    # delta-rs does not escape these characters either, and finds removed files by the escaped path.
    return {"add": _file(file, quote(file.path, safe="/!$&'()+,:;=@")) | more}


def _file(file: DataFile | TableFile, path: str) -> dict[str, Any]:
    return {"path": path, "partitionValues": dict(file.partition_values), "size": file.size}
