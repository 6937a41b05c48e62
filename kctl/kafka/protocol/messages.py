"""Protocol messages that kafka-python 3.0 lacks, made by its own classes from `schemas/`.

Group descriptions of KIP-848 (key 69), of share groups (keys 77 and 90, KIP-932) and of streams groups (key 89,
KIP-1071). Without them a group of the new protocols looks dead: DescribeGroups knows classic groups only.
"""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage

__all__ = [
    "ConsumerGroupDescribeRequest",
    "DescribeShareGroupOffsetsRequest",
    "ShareGroupDescribeRequest",
    "StreamsGroupDescribeRequest",
]

_SCHEMAS = "kctl.kafka.protocol.schemas"


class ConsumerGroupDescribeRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg,misc]  # kafka-python is not typed
    pass


class ConsumerGroupDescribeResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg,misc]  # as above
    pass


class ShareGroupDescribeRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg,misc]  # as above
    pass


class ShareGroupDescribeResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg,misc]  # as above
    pass


class StreamsGroupDescribeRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg,misc]  # as above
    pass


class StreamsGroupDescribeResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg,misc]  # as above
    pass


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg,misc]  # as above
    pass


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg,misc]  # as above
    pass
