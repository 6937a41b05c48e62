from __future__ import annotations

import pytest

from kctl.cli.fleet.tables import TABLES
from kctl.errors import IncompleteAnswer, ThresholdExceeded
from kctl.rows.lag import LagTotals
from kctl.rows.offsets import OffsetRow, Offsets
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.replies.topic_partition import TopicPartition


def lag(total: int | None, *unknown: int) -> LagTotals:
    return LagTotals(total, tuple(TopicPartition("a", number) for number in unknown))


def offsets(*remaining: int | None) -> Offsets:
    return Offsets(tuple(OffsetRow("a", number, remaining_count=each) for number, each in enumerate(remaining)))


def test_at_the_limit_is_not_above_it() -> None:
    TABLES["kafka_lag"].check(lag(10), 10)
    TABLES["offset_checker"].check(offsets(10, 0), 10)
    TABLES["block_size"].check(StorageReply(pending=10), 10)


def test_above_the_limit_the_value_is_named() -> None:
    with pytest.raises(ThresholdExceeded, match="the total lag is 11, above 10"):
        TABLES["kafka_lag"].check(lag(11), 10)
    with pytest.raises(ThresholdExceeded, match="a remaining-count is 11, above 10"):
        TABLES["offset_checker"].check(offsets(0, 11), 10)
    with pytest.raises(ThresholdExceeded, match="the number of pending messages is 11, above 10"):
        TABLES["block_size"].check(StorageReply(pending=11), 10)


def test_a_value_above_the_limit_counts_even_if_others_are_unknown() -> None:
    with pytest.raises(ThresholdExceeded):
        TABLES["kafka_lag"].check(lag(11, 3), 10)


def test_what_is_unknown_does_not_pass_for_all_is_well() -> None:
    for result in (lag(None), lag(0, 3)):
        with pytest.raises(IncompleteAnswer, match="is not known whether"):
            TABLES["kafka_lag"].check(result, 10)
    with pytest.raises(IncompleteAnswer):
        TABLES["offset_checker"].check(offsets(0, None), 10)
    with pytest.raises(IncompleteAnswer):
        TABLES["block_size"].check(StorageReply(pending=None), 10)
