"""`ScriptedBroker`: a Kafka broker that follows a test's script over a real socket and the real protocol.

It does what a real broker cannot be made to do at a given moment, such as loading offsets for ever, moving a leader
between two questions, or sending half a response. A script has a step, or several, for each request:

    script = {"DescribeGroups": [Answers({"groups": [{"group_id": "billing", "error_code": 14}]}), HangsUp()]}
    with ScriptedBroker(script, topics={"orders": 2}) as broker:
        ...                        # a client of any kind, at broker.address
        assert broker.asked.count("DescribeGroups") == 2

The broker answers ApiVersions, Metadata and FindCoordinator without a script. It knows only these requests and those of
its script. It leads all partitions of `topics` and coordinates every group.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tests.servers.broker_frames import Fields, RequestFrames, metadata_fields, request_classes, response_frame
from tests.servers.scripted_server import (
    Answers,
    BreaksFrame,
    HangsUp,
    Refuses,
    ScriptedServer,
    SendsBytes,
    Stalls,
    Step,
)

__all__ = ["Answers", "BreaksFrame", "HangsUp", "Script", "ScriptedBroker", "SendsBytes", "Stalls", "Step"]

Script: TypeAlias = Mapping[str, Step | Sequence[Step]]
"""Maps a request's name in Kafka's documentation to a step, or to steps for the 1st, 2nd and every later request."""


class ScriptedBroker(ScriptedServer[Any]):
    """A broker on 127.0.0.1 that follows its script, and answers in order, as Kafka does.

    `requests` are kafka-python's objects. `topics` are names with their numbers of partitions. A test with several
    brokers scripts `Metadata` with `metadata_fields`. `versions` are the announced versions of requests, by default all
    that kafka-python knows. A request that is not announced ends its connection, as with a real broker.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        node_id: int = 1,
        topics: Mapping[str, int] | None = None,
        versions: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        known: Script = {
            "ApiVersions": Answers(self._api_versions),
            "Metadata": Answers(self._metadata),
            "FindCoordinator": Answers(self._coordinators),
            **(script or {}),
        }
        super().__init__(f"broker {node_id}", known)
        self.node_id = node_id
        self._topics = dict(topics or {})
        self._versions = {name: (0, request_classes()[name].max_version) for name in known} | dict(versions or {})

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def asked(self) -> list[str]:
        return [self._about(request) for request in list(self.requests)]

    def _listen(self) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections have it too
        self._port: int = listener.getsockname()[1]
        return listener

    def _decoder(self) -> Callable[[bytes], Sequence[Any]]:
        return RequestFrames().feed

    def _about(self, request: Any) -> str:
        name: str = request.name
        return name.removesuffix("Request")

    def _answer(self, request: Any, step: Answers | Refuses) -> bytes:
        if isinstance(step, Refuses):
            raise TypeError("a broker refuses by the fields of its response: `Answers`")
        return response_frame(request, step.result(request) if callable(step.result) else step.result)

    def _api_versions(self, _request: Any) -> Fields:
        classes = request_classes()
        return {
            "api_keys": [
                {"api_key": classes[name].API_KEY, "min_version": low, "max_version": high}
                for name, (low, high) in self._versions.items()
            ]
        }

    def _metadata(self, request: Any) -> Fields:
        leaders = {name: [self.node_id] * count for name, count in self._topics.items()}
        names = None if request.topics is None else [topic.name for topic in request.topics]
        return metadata_fields({self.node_id: self.address}, leaders, names)

    def _coordinators(self, request: Any) -> Fields:
        place = {"node_id": self.node_id, "host": "127.0.0.1", "port": self._port}
        return {**place, "coordinators": [{"key": key, **place} for key in request.coordinator_keys or ()]}
