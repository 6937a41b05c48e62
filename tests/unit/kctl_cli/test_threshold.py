from __future__ import annotations

import pytest

from kctl.cli.fleet.tables import check
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
    check("kafka_lag", lag(10), 10)
    check("offset_checker", offsets(10, 0), 10)
    check("block_size", StorageReply(pending=10), 10)


def test_above_the_limit_the_value_is_named() -> None:
    with pytest.raises(ThresholdExceeded, match="the total lag is 11, above 10"):
        check("kafka_lag", lag(11), 10)
    with pytest.raises(ThresholdExceeded, match="a remaining-count is 11, above 10"):
        check("offset_checker", offsets(0, 11), 10)
    with pytest.raises(ThresholdExceeded, match="the number of pending messages is 11, above 10"):
        check("block_size", StorageReply(pending=11), 10)


def test_a_value_above_the_limit_counts_even_if_others_are_unknown() -> None:
    with pytest.raises(ThresholdExceeded):
        check("kafka_lag", lag(11, 3), 10)


def test_what_is_unknown_does_not_pass_for_all_is_well() -> None:
    for result in (lag(None), lag(0, 3)):
        with pytest.raises(IncompleteAnswer, match="is not known whether"):
            check("kafka_lag", result, 10)
    with pytest.raises(IncompleteAnswer):
        check("offset_checker", offsets(0, None), 10)
    with pytest.raises(IncompleteAnswer):
        check("block_size", StorageReply(pending=None), 10)
