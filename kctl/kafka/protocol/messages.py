"""Protocol messages that kafka-python 3.0 lacks. Their schemas are in `schemas/`. The messages are for groups that
DescribeGroups does not support. The API keys are 69 for groups of KIP-848, 77 and 90 for share groups (KIP-932), and 89
for streams groups (KIP-1071)."""

from typing import Any

from kafka.protocol.api_message import ApiMessage


def _message(name: str) -> Any:
    kind: Any = type(ApiMessage)
    return kind(name, (ApiMessage,), {"__module__": __name__}, load_json="kctl.kafka.protocol.schemas")


ConsumerGroupDescribeRequest = _message("ConsumerGroupDescribeRequest")
ConsumerGroupDescribeResponse = _message("ConsumerGroupDescribeResponse")
ShareGroupDescribeRequest = _message("ShareGroupDescribeRequest")
ShareGroupDescribeResponse = _message("ShareGroupDescribeResponse")
StreamsGroupDescribeRequest = _message("StreamsGroupDescribeRequest")
StreamsGroupDescribeResponse = _message("StreamsGroupDescribeResponse")
DescribeShareGroupOffsetsRequest = _message("DescribeShareGroupOffsetsRequest")
DescribeShareGroupOffsetsResponse = _message("DescribeShareGroupOffsetsResponse")
