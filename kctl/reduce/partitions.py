"""Merges what agents and brokers report about the fleet's partitions.

Agents report who reads a partition. If two agents claim it, the higher generation wins. If the generations are equal,
the newer offsets win. Progress comes from the newest offsets, whether an agent or the brokers reported them. An
attached application's rows follow as a separate group. Partitions that only the application uses count as the fleet's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import Any, TypeAlias

import numpy as np

from kctl.reduce.base import Answer, BrokerSnapshot, per_sender
from kctl.rows.columns import ABSENT, Bools, Ints, Names, Partition, PartitionColumns, Reals, lag_from
from kctl.rows.partitions import LagTotals, ResetPolicy
from kctl_agent.replies.partitions import PartitionReply, PartitionsReply

_Claim: TypeAlias = tuple[PartitionReply, Answer[PartitionsReply]]


def offset_checker(answers: Sequence[Answer[PartitionsReply]], brokers: BrokerSnapshot) -> PartitionColumns:
    """Merges the answers to `kafka_lag` or `offset_checker` with the brokers' columns."""
    claims, attached = _claims(answers, brokers.partitions)
    names, base = brokers.partitions.names, brokers.partitions
    places = {key: place for place, key in enumerate(names.keys)}
    if attached or not claims.keys() <= places.keys():
        own = tuple(sorted({*names.keys, *claims}))
        # With a prefix, because a fleet's group may have the same name.
        beside = {f"attached/{name}": dict(sorted(attached[name].items())) for name in sorted(attached)}
        rows = [places.get(key, -1) for key in own]
        # An attached application has its own committed offsets, but shares the end of the log.
        rows += [
            -1 if row.end is not None else places.get(key, -1)
            for each in beside.values()
            for key, (row, _) in each.items()
        ]
        names = Names({names.groups[0]: own, **{name: tuple(each) for name, each in beside.items()}})
        base = base.chosen(names, np.array(rows, np.intp))
        base.committed[len(own) :] = ABSENT
        found = [*map(claims.get, own), *(claim for each in beside.values() for claim in each.values())]
    else:
        found = [*map(claims.get, names.keys)]
    return _merged(found, base, brokers.reset)


def kafka_lag(partitions: PartitionColumns) -> LagTotals:
    """Returns the lags of the fleet's group, without attached applications."""
    return partitions.lags()[0]


def _claims(
    answers: Sequence[Answer[PartitionsReply]], brokers: PartitionColumns
) -> tuple[dict[Partition, _Claim], dict[str, dict[Partition, _Claim]]]:
    claims: dict[Partition, _Claim] = {}
    of_no_group: list[_Claim] = []
    for answer in per_sender(answers):
        for row in answer.result.rows:
            key, claim = (row.topic, row.partition), (row, answer)
            if row.generation is None:  # reported by an attached application
                of_no_group.append(claim)
            elif (claimed := claims.get(key)) is None or _strength(claim) > _strength(claimed):
                claims[key] = claim
    attached: dict[str, dict[Partition, _Claim]] = {}
    committed = dict(zip(brokers.names.keys, brokers.committed.tolist(), strict=True)) if of_no_group else {}
    for row, answer in of_no_group:
        key = row.topic, row.partition
        # If the fleet neither reads nor has committed the partition, the application's claim counts as the fleet's.
        is_read = key in claims or committed.get(key) != ABSENT
        (attached.setdefault(answer.sender, {}) if is_read else claims)[key] = row, answer
    return claims, attached


def _strength(claim: _Claim) -> tuple[int, float]:
    row, answer = claim
    return row.generation or 0, -inf if row.age_seconds is None else -row.age_seconds - answer.kept_seconds


def _merged(claims: Sequence[_Claim | None], brokers: PartitionColumns, reset: ResetPolicy) -> PartitionColumns:
    rows, now = [None if claim is None else claim[0] for claim in claims], brokers.now
    replies = [None if claim is None else claim[1] for claim in claims]
    is_claimed = np.array([row is not None for row in rows], np.bool_)
    kept, age = _reals(replies, "kept_seconds"), _reals(rows, "age_seconds")
    claimed_at = now - age - kept
    # If an agent has no offsets yet, this is as old as its reply.
    unasked_at = now - _reals(replies, "age_seconds")
    claimed_at = np.where(np.isnan(claimed_at) & np.isnan(brokers.at), unasked_at, claimed_at)
    is_newer = is_claimed & (np.isnan(brokers.at) | (claimed_at >= brokers.at))

    # Committed offset and end come from the newer source, so that the lag was true at one moment. The other fills gaps.
    def both(name: str) -> tuple[Ints, Ints, Bools]:
        of_agents, of_brokers = _ints(rows, name), getattr(brokers, name)
        newer, older = np.where(is_newer, of_agents, of_brokers), np.where(is_newer, of_brokers, of_agents)
        return newer, older, (newer == ABSENT) & (older != ABSENT)

    at, older_at = np.where(is_newer, claimed_at, brokers.at), np.where(is_newer, brokers.at, claimed_at)
    start, older, fills = both("start")
    start = np.where(fills, older, start)
    committed, older, fills = both("committed")
    committed, at = np.where(fills, older, committed), np.where(fills, older_at, at)
    end, older, fills = both("end")
    end, at = np.where(fills, np.maximum(older, np.maximum(committed, 0)), end), np.where(fills, older_at, at)
    position = _ints(rows, "position")
    return replace(
        brokers,
        at=np.where(np.isnan(at), brokers.at, at),
        start=start,
        committed=committed,
        lag_from=np.where(is_claimed, lag_from(committed, start, position, reset), brokers.lag_from),
        end=end,
        position=position,
        last_timestamp=_reals(rows, "last_timestamp"),
        worker=np.array([None if reply is None else reply.sender for reply in replies], np.object_),
        generation=_ints(rows, "generation"),
        stored_messages=_ints(rows, "stored_messages"),
        stored_seconds=_reals(rows, "stored_seconds") + kept,
    )


def _ints(rows: Iterable[PartitionReply | None], name: str) -> Ints:
    values = (getattr(row, name, None) for row in rows)
    return np.array([ABSENT if value is None else value for value in values], np.int64)


def _reals(rows: Iterable[Any], name: str) -> Reals:
    return np.array([getattr(row, name, None) for row in rows], np.float64)
