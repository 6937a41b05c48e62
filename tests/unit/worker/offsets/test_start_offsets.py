from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError, LeaderNotAvailableError, UnknownTopicOrPartitionError

from kctl_agent.process.bootstrap import BootstrapError
from kctl_agent.storage.chunk import StoredOffset, StoredOffsetMoved
from kctl_agent.storage.file import FileStorage
from kctl_agent.worker.offsets.brokers import BrokerView, BrokerWatcher, Topics
from kctl_agent.worker.offsets.commit_metadata import CommitNote, StorageId
from kctl_agent.worker.offsets.progress import Reading
from kctl_agent.worker.offsets.start_offsets import StartOffsets
from tests.conformance.given import chunk, put
from tests.conftest import eventually
from tests.unit.worker.offsets.broker_answers import T0, T1, Answers, start_offsets

U0, U1 = TopicPartition("u", 0), TopicPartition("u", 1)


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[FileStorage]:
    with closing(FileStorage(tmp_path / "s.sqlite")) as storage:
        storage.prepare()
        yield storage


def note(storage: FileStorage, start: StartOffsets) -> CommitNote:
    start.decide(frozenset({T0}), {})
    return CommitNote(start.identity, "A")


def test_another_owners_step_between_the_reads_is_not_taken_for_an_emptied_storage(storage: FileStorage) -> None:
    answers = Answers()
    start = start_offsets(storage, answers)
    own = note(storage, start)

    def other_owner() -> None:
        storage.init_offsets([StoredOffset("t", 0, "A", 0)])
        put(storage, chunk(0, 40))
        answers.committed[T0] = (40, own)
        answers.meanwhile = lambda: None

    answers.meanwhile = other_owner
    with pytest.raises(StoredOffsetMoved):
        start.decide(frozenset({T0}), {})

    again = start.decide(frozenset({T0}), {})
    assert (again.source(T0).start, again.moves) == (40, [])


def test_with_latest_new_topics_are_placed_whole_and_added_partitions_at_their_start(storage: FileStorage) -> None:
    answers = Answers()
    start = start_offsets(storage, answers, reset="latest")

    first = start.decide(frozenset({T0}), {})
    start.place(first)
    answers.partitions = (T0, T1, TopicPartition("t", 2))
    added = start.decide(frozenset({T1, TopicPartition("t", 2)}), {})

    assert first.source(T0).start == first.source(T1).start == 100
    assert added.source(T1).start == 100
    assert added.source(TopicPartition("t", 2)).start == 0


def test_with_latest_a_new_topic_answered_in_part_waits_and_the_others_are_read(storage: FileStorage) -> None:
    answers = Answers(partitions=(T0, T1, U0, U1), unanswered={U1: "it has no leader"})
    start = start_offsets(storage, answers, reset="latest")
    storage.init_offsets([StoredOffset("t", 0, "A", 7), StoredOffset("t", 1, "A", 7)])

    decided = start.decide(frozenset({T0, U0}), {})

    assert decided.found.keys() == {T0}
    assert "begun with all of its partitions" in decided.unanswered[U0]
    with pytest.raises(LeaderNotAvailableError, match="it has no leader"):
        start.decide(frozenset({U1}), {})


@pytest.mark.shows("a topic that a worker may not describe does not stop other topics")
def test_a_topic_that_is_not_described_is_not_begun_and_the_others_are(storage: FileStorage) -> None:
    start = start_offsets(storage, Answers(), reset="latest")

    decided = start.decide(frozenset({T0, U0}), {})
    assert (set(decided.found), decided.unanswered) == ({T0, T1}, {U0: "topic u cannot be described"})
    with pytest.raises(KafkaError, match="topic u cannot be described"):
        start.decide(frozenset({U0}), {})


@pytest.mark.shows("a storage that was emptied or exchanged is rejected until a setting decides")
@pytest.mark.parametrize(
    ("kind", "committed", "storage_id", "why"),
    [
        ("on_lost_offsets", 40, None, "storage.on_lost_offsets is stop, and t-0: the group has committed offset 40"),
        ("on_other_storage", 40, StorageId("9", "elsewhere"), "storage.on_other_storage is stop, and t-0: offset 40"),
    ],
)
def test_a_storage_that_is_not_what_it_was_is_rejected_until_a_setting_decides(
    storage: FileStorage, kind: str, committed: int, storage_id: StorageId | None, why: str
) -> None:
    answers = Answers()
    own = note(storage, start_offsets(storage, answers))
    answers.committed = {T0: (committed, replace(own, storage=storage_id or own.storage))}

    with pytest.raises(BootstrapError, match=why):
        start_offsets(storage, answers).decide(frozenset({T0}), {})

    other = "take_over" if kind == "on_other_storage" else "continue"
    assert start_offsets(storage, answers, **{kind: other}).decide(frozenset({T0}), {}).source(T0).start == committed


def test_what_another_owner_places_later_stays_and_no_other_offset_is_placed(storage: FileStorage) -> None:
    storage.init_offsets([StoredOffset("t", 0, "A", 40)])
    start = start_offsets(storage, Answers({T0: (20, None)}))
    decided = start.decide(frozenset({T0, T1}), {})
    storage.init_offsets([StoredOffset("t", 0, "A", 50)], storage.stored_offsets([T0]))

    with pytest.raises(StoredOffsetMoved):
        start.place(decided)

    assert storage.stored_offsets([T0, T1]) == {T0: StoredOffset("t", 0, "A", 50, 2)}


def test_lost_records_stop_the_worker_before_an_offset_is_placed_if_so_set(storage: FileStorage) -> None:
    storage.init_offsets([StoredOffset("t", 0, "A", 10), StoredOffset("t", 1, "A", 20)])
    before = storage.stored_offsets([T0, T1])
    answers = Answers(log_start=30)

    words = (
        r"on_data_loss is stop, and t-0: 20 .*\(and so for 1 more partition\); "
        r'with workers.on_data_loss = "continue" the worker continues at 30$'
    )
    with pytest.raises(BootstrapError, match=words):
        start_offsets(storage, answers, on_data_loss="stop").decide(frozenset({T0, T1}), {})

    assert storage.stored_offsets([T0, T1]) == before
    assert start_offsets(storage, answers).decide(frozenset({T0, T1}), {}).source(T1).start == 30


@pytest.mark.shows("with `latest`, added partitions are read from their start")
def test_an_error_of_a_topic_leaves_its_id_and_a_topic_that_is_gone_has_none() -> None:
    before = {"orders": "A", "invoices": "B", "gone": "C", "recreated": "D"}
    errors = {"invoices": LeaderNotAvailableError, "gone": UnknownTopicOrPartitionError}

    topics = Topics((), {"orders": "A", "recreated": "E"}, errors)

    assert topics.ids_since(before) == {"orders": "A", "invoices": "B", "recreated": "E"}


@pytest.mark.parametrize("error", [KafkaTimeoutError("no answer"), ValueError("no such field")])
def test_whatever_the_brokers_answers_raise_is_reported_and_they_are_asked_again(error: Exception) -> None:
    brokers: Any = Answers(error=error)
    reported: list[str | None] = []
    watcher = BrokerWatcher(brokers, lambda: (), reported.append, every_seconds=0.001)
    watcher.start()
    try:
        eventually(lambda: len(reported) > 2)
        assert str(error) in (reported[-1] or "")
        brokers.error = None
        eventually(lambda: reported[-1] is None)
        assert watcher.view.taken_at is not None
    finally:
        watcher.stop()
        watcher.join()


def reading() -> Reading:
    began = Reading()
    began.began({T0: "A", T1: "A"}, 100.0)
    return began


def view(topic_id: str | None) -> BrokerView:
    return BrokerView({T0: 0}, {}, 101.0, topic_ids={} if topic_id is None else {"t": topic_id})


@pytest.mark.parametrize(
    ("topic_id", "is_void", "is_recreated"), [("A", False, False), ("B", True, True), (None, True, False)]
)
def test_a_recreated_or_deleted_topic_is_void(topic_id: str | None, is_void: bool, is_recreated: bool) -> None:
    unknown = Reading()
    unknown.began({T0: None}, 100.0)

    assert reading().is_void(T0, view(topic_id)) == is_void
    assert reading().is_recreated([T0], view(topic_id)) == is_recreated
    assert not unknown.is_void(T0, view(topic_id))
    assert not unknown.is_void(T1, view(topic_id)), "it was never read"


def test_a_partition_that_is_read_is_without_leader_after_so_long() -> None:
    without = BrokerView(taken_at=130.0, unanswered_since={T0: 110.0})
    before_reading_began = BrokerView(taken_at=99.0, topic_ids={"t": "B"}, unanswered_since={T0: 10.0})

    for each in (before_reading_began, BrokerView()):
        assert not reading().is_void(T0, each)
        assert not reading().is_without_leader([T0], each, 15.0)
    assert reading().is_without_leader([T0], without, 15.0)
    assert not reading().is_without_leader([T0], without, 30.0)
    assert not reading().is_without_leader([T1], without, 15.0)
