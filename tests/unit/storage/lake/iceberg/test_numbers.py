"""Numbers by name as properties of a table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl_agent.storage.base import Binding, StoredOffset
from kctl_agent.storage.lake.iceberg.numbers import pack, unpack
from kctl_agent.storage.lake.offsets import transactions

TOPIC_ID = "f3a1b2c3-d4e5-46f7-98a9-0b1c2d3e4f5a"

names = st.one_of(
    st.builds(
        lambda topic, partition, kind: f"kctl/c/g%2F1/{topic}/{partition}{kind}",
        st.sampled_from(["a", "b.c"]),
        st.integers(0, 3),
        st.sampled_from(["", "", "/version", "/topic-id-high"]),
    ),
    st.sampled_from(["kctl/requeue/g", "kctl/requeue/g/kept", "kctl/c/g/t", "other"]),
)


@given(st.dictionaries(names, st.integers(-(2**63), 2**63 - 1)))
def test_numbers_come_back_as_they_were(numbers: dict[str, int]) -> None:
    assert unpack({**pack(numbers), "owner": "somebody"}) == numbers


def test_what_a_thousand_partitions_have_in_common_is_written_once() -> None:
    owner = Binding("g", "cluster-1")
    numbers: dict[str, int] = {}
    for partition in range(1000):
        numbers |= transactions(owner, None, StoredOffset("t", partition, TOPIC_ID, 1_234_567, 1))

    [text] = pack(numbers).values()

    assert len(numbers) == 4000
    assert len(text) < 15_000


def test_properties_that_somebody_has_changed_are_refused() -> None:
    for text in ("[]", "{}", "no JSON", '{"version": 1}'):
        with pytest.raises(ValueError, match=r".") as refused:
            unpack({"kctl.offsets/c/g/t": text, "kctl.numbers": "1"})
        assert refused.value
