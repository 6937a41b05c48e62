"""Records that Spark fails at, read by a plain consumer from a real broker."""

import time
import uuid

import pytest
from kafka import KafkaProducer, TopicPartition

from kctl_agent.message import Message
from kctl_agent.worker.query.unreadable_records import MOST_MILLISECONDS, unreadable_records
from kctl_agent.worker.settings import KafkaSettings
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.topics import create_topic

NANOSECONDS = time.time_ns()


@pytest.fixture
def tp(broker: KafkaBroker) -> TopicPartition:
    name = f"t{uuid.uuid4().hex[:8]}"
    create_topic(broker.bootstrap_servers, name, 1, {"message.timestamp.after.max.ms": str(2**63 - 1)})
    return TopicPartition(name, 0)


def read(broker: KafkaBroker, tp: TopicPartition, offset: int, isolation: str = "read_uncommitted") -> list[Message]:
    kafka = KafkaSettings(broker.bootstrap_servers, "g", (tp.topic,), "earliest", "range", 6, 1, isolation, None)
    return unreadable_records(kafka, tp, offset)


def test_a_record_is_read_as_sent_and_bad_timestamps_together(broker: KafkaBroker, tp: TopicPartition) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all") as producer:
        producer.send(tp.topic, b"\xff", key=b"\x00", headers=[("h", b""), ("h", b"\xfe")], timestamp_ms=7)
        producer.send(tp.topic, None, key=b"", timestamp_ms=MOST_MILLISECONDS)
        for number in range(3):
            producer.send(tp.topic, b"%d" % number, timestamp_ms=NANOSECONDS)
        producer.send(tp.topic, b"last", timestamp_ms=8)
        producer.flush()

    assert read(broker, tp, 0) == [Message(tp.topic, 0, 0, b"\x00", b"\xff", 7, (("h", b""), ("h", b"\xfe")))]
    assert read(broker, tp, 1) == [Message(tp.topic, 0, 1, b"", None, MOST_MILLISECONDS)]
    assert [(each.offset, each.timestamp) for each in read(broker, tp, 3)] == [(3, NANOSECONDS), (4, NANOSECONDS)]
    assert [each.value for each in read(broker, tp, 5)] == [b"last"]


def test_a_marker_of_a_transaction_and_what_was_aborted_is_no_record(broker: KafkaBroker, tp: TopicPartition) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=tp.topic) as producer:
        producer.init_transactions()
        for is_committed in (False, True):
            producer.begin_transaction()
            producer.send(tp.topic, b"in a transaction", timestamp_ms=7)
            producer.flush()
            producer.commit_transaction() if is_committed else producer.abort_transaction()
        producer.begin_transaction()
        producer.send(tp.topic, b"the last one", timestamp_ms=7)
        producer.commit_transaction()

    assert read(broker, tp, 0, "read_committed") == []
    assert [each.offset for each in read(broker, tp, 0)] == [0]
    assert read(broker, tp, 1) == []
    assert [each.offset for each in read(broker, tp, 2, "read_committed")] == [2]
