from __future__ import annotations

from typing import NamedTuple

from kctl.kafka.produce import DeliveryReport, PartitionReport


class Metadata(NamedTuple):
    partition: int
    offset: int


def test_a_report_has_count_and_offsets_of_each_partition_and_the_first_failure() -> None:
    report, first = DeliveryReport(), OSError("first")

    for partition, offset in ((2, 7), (0, 40), (2, 8)):
        report.add(Metadata(partition, offset), 10)
    for error in (first, OSError("second")):
        report.add_failure(error)

    assert list(report.partitions().items()) == [(0, PartitionReport(1, 40, 40)), (2, PartitionReport(2, 7, 8))]
    assert (report.messages, report.bytes, report.failed, report.first_failure) == (3, 30, 2, first)

    report = DeliveryReport()
    report.add(Metadata(0, -1), 10)
    assert report.partitions() == {0: PartitionReport(1, None, None)}, "without acknowledgements, offsets are not known"
