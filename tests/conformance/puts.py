"""Workers put chunks of several partitions atomically, into a storage that belongs to one group of one cluster."""

from collections.abc import Callable

import pytest

from kctl_agent.storage.base import Storage
from kctl_agent.storage.chunk import Binding, Chunk, GapRefused, OtherGroup, Put, StoredOffset
from tests.conformance import given
from tests.conformance.given import TOPIC_ID, chunk
from tests.conformance.offsets import StoredOffsets


class Puts(StoredOffsets[Storage]):
    def plan(self, storage: Storage, chunk: Chunk) -> Callable[[], Put]:
        return lambda: given.put(storage, chunk)[0]

    def put(self, storage: Storage, *chunks: Chunk) -> list[Put]:
        return given.put(storage, *chunks)

    def stored(self, storage: Storage) -> list[int]:
        return given.stored(storage)

    def test_a_put_keeps_values_and_the_topics_id_in_blocks_of_three_that_are_counted(self, storage: Storage) -> None:
        storage.init_offsets([StoredOffset("t", 0, TOPIC_ID, 0), StoredOffset("t", 1, None, 0)])

        self.put(storage, chunk(0, 10), chunk(0, 3, topic_id=None, partition=1))

        assert [record.value for block in storage.blocks() for record in block.messages()][3] == b"0003"
        assert {block.partition: block.topic_id for block in storage.blocks()} == {0: TOPIC_ID, 1: None}
        stats = storage.stats()
        assert sorted(block.count for block in storage.blocks()) == [1, 3, 3, 3, 3]
        assert (stats.pending, stats.processing, stats.dead, stats.limits.messages) == (13, 0, 0, None)
        assert stats.bytes == sum(len(block.body) for block in storage.blocks())

    @pytest.mark.shows("a put of several partitions is stored for all of them or for none")
    def test_chunks_of_several_partitions_are_put_at_once_all_or_none(self, storage: Storage) -> None:
        storage.init_offsets([StoredOffset("t", partition, TOPIC_ID, 0) for partition in range(3)])
        self.put(storage, chunk(0, 2, partition=1))
        chunks = [chunk(0, 4), chunk(0, 5, partition=1), chunk(0, 9, [], partition=2)]

        with storage.writer() as writer:
            with pytest.raises(GapRefused, match="t-2"):
                writer.put_all([*chunks[:2], chunk(3, 5, partition=2)])
            assert len(self.stored(storage)) == 2
            puts = writer.put_all(chunks)

        assert [(put.stored, put.skipped) for put in puts] == [(4, 0), (3, 2), (0, 0)]
        assert sorted(self.stored(storage)) == sorted([*range(4), *range(5)])
        reached = storage.stored_offsets([("t", partition) for partition in range(3)])
        assert [reached["t", partition].next for partition in range(3)] == [4, 5, 9]

    def test_a_storage_belongs_to_one_group_of_one_cluster_until_it_is_taken_over(self, storage: Storage) -> None:
        storage.bind(Binding("orders", None))
        storage.bind(Binding("orders", "K1"))

        for other in (Binding("invoices", "K1"), Binding("orders", "K2")):
            with pytest.raises(OtherGroup, match=r"belongs to group orders of cluster K1, and this is group"):
                storage.bind(other)
        storage.bind(Binding("orders", "K1"))

        storage.bind(Binding("invoices", "K2"), take_over=True)
        with pytest.raises(OtherGroup, match="belongs to group invoices of cluster K2"):
            storage.bind(Binding("orders", "K1"))
