"""Which dead letters are meant, as SQL of delta-rs. Pure but for the age, which is by this machine's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kctl_agent.storage.claim import Selection

__all__ = ["READING", "of_cluster", "of_reading", "predicate", "quoted", "reading"]

READING = "reading"
"""The column that holds in which reading of its partition a message became a dead letter; null in rows of earlier
commits."""


def predicate(group: str, selection: Selection) -> str:
    wanted = [f'"group" = {quoted(group)}']
    if selection.topic is not None:
        wanted.append(f"topic = {quoted(selection.topic)}")
    if selection.partition is not None:
        wanted.append(f'"partition" = {selection.partition}')
    if selection.offset_from is not None:
        wanted.append(f'"offset" >= {selection.offset_from}')
    if selection.offset_to is not None:
        wanted.append(f'"offset" <= {selection.offset_to}')
    if selection.older_than_seconds is not None:
        wanted.append(f"failed_at <= '{_before(selection.older_than_seconds).isoformat()}'")
    return " and ".join(wanted)


def reading(table_id: str, version: int) -> str:
    """One for each time that a stored offset of this table is set: after a seek messages come again, and where a topic
    was recreated others have their offsets."""
    return f"{table_id}/{version}"


def of_reading(reading: str) -> str:
    """Rows of earlier commits may be of any."""
    return f"({READING} = {quoted(reading)} or {READING} is null)"


def of_cluster(cluster_id: str | None) -> str:
    return "cluster is null" if cluster_id is None else f"cluster = {quoted(cluster_id)}"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _before(seconds: float) -> datetime:
    now = datetime.now(UTC)
    return now - timedelta(seconds=min(seconds, now.timestamp()))
