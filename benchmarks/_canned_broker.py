"""A Kafka broker in a process of its own whose answers are made once, as bytes: what they cost is not the client's.

    python -m benchmarks._canned_broker PARTITIONS_PER_TOPIC TOPICS GROUPS TOPICS_PER_GROUP

Prints its port, then serves until its stdin ends. Group `g-N` has committed all partitions of TOPICS_PER_GROUP topics.
For each line `commit` on stdin the committed offset of every partition goes up by one, far below the ends; for each
line `keep up` as many messages arrive in every partition as are committed, and a few more in every second one.
"""

import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.servers.broker_frames import RequestFrames, metadata_fields, response_frame

_SIZE = struct.Struct(">i")


@contextmanager
def canned_broker(
    partitions: int, topics: int, groups: int, per_group: int
) -> Iterator[tuple[str, Callable[[str], None]]]:
    """Its address, and what gives it a line: `commit` or `keep up`."""
    command = [sys.executable, "-m", "benchmarks._canned_broker", *map(str, (partitions, topics, groups, per_group))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert process.stdin is not None
    assert process.stdout is not None
    stdin = process.stdin

    def give(line: str) -> None:
        stdin.write(f"{line}\n")
        stdin.flush()
        assert process.stdout is not None
        process.stdout.readline()

    try:
        yield f"127.0.0.1:{process.stdout.readline().strip()}", give
    finally:
        stdin.close()
        process.wait(30)
        process.stdout.close()


class _Answers:
    def __init__(self, port: int, partitions: int, topics: int, groups: int, per_group: int) -> None:
        self._names = [f"topic-{number}" for number in range(topics)]
        self._leaders = {name: [1] * partitions for name in self._names}
        self._groups = {
            f"g-{number}": [self._names[(number * per_group + each) % topics] for each in range(per_group)]
            for number in range(groups)
        }
        self._port, self._partitions = port, partitions
        self._kept: dict[Any, tuple[Any, bytes]] = {}
        """What was asked, and the answer."""
        self.committed = 1000
        self.keeps_up = False

    def take(self, line: str) -> None:
        """Makes the answers that are other ones now, before they are asked for."""
        self.keeps_up = line == "keep up"
        self.committed += 1000 if self.keeps_up else 1
        for key, (request, _) in self._kept.items():
            if request.name.startswith(("OffsetFetch", "ListOffsets")):
                self._kept[key] = request, response_frame(request, self._fields(request))

    def of(self, request: Any) -> bytes:
        key = (request.API_KEY, request.API_VERSION, self._variant(request))
        if key not in self._kept:
            self._kept[key] = request, response_frame(request, self._fields(request))
        frame = bytearray(self._kept[key][1])
        _SIZE.pack_into(frame, 4, request.header.correlation_id)
        return bytes(frame)

    def _variant(self, request: Any) -> object:
        name = request.name.removesuffix("Request")
        if name == "ListOffsets":
            return request.topics[0].partitions[0].timestamp
        return len(request.topics or ()) if name == "Metadata" else 0

    def _fields(self, request: Any) -> Any:
        return getattr(self, "_" + request.name.removesuffix("Request"))(request)

    def _ApiVersions(self, _: Any) -> Any:  # noqa: N802 - Kafka's own name, as all below
        wanted = {1: 4, 2: 7, 3: 9, 9: 9, 10: 4, 15: 5, 16: 5, 18: 3}
        return {"api_keys": [{"api_key": key, "min_version": 0, "max_version": top} for key, top in wanted.items()]}

    def _Metadata(self, request: Any) -> Any:  # noqa: N802
        wanted = None if request.topics is None else [topic.name for topic in request.topics]
        return metadata_fields({1: f"127.0.0.1:{self._port}"}, self._leaders, wanted)

    def _ListGroups(self, _: Any) -> Any:  # noqa: N802
        return {
            "groups": [
                {"group_id": name, "protocol_type": "consumer", "group_state": "Stable", "group_type": "classic"}
                for name in self._groups
            ]
        }

    def _DescribeGroups(self, _: Any) -> Any:  # noqa: N802
        member = {
            "member_id": "m",
            "group_instance_id": None,
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "member_metadata": b"x" * 40,
            "member_assignment": b"x" * 60,
        }
        return {
            "groups": [
                {
                    "error_code": 0,
                    "group_id": name,
                    "group_state": "Stable",
                    "protocol_type": "consumer",
                    "protocol_data": "range",
                    "members": [member, member],
                }
                for name in self._groups
            ]
        }

    def _OffsetFetch(self, _: Any) -> Any:  # noqa: N802
        partitions = [
            {
                "partition_index": number,
                "committed_offset": self.committed + number,
                "committed_leader_epoch": 0,
                "metadata": "",
                "error_code": 0,
            }
            for number in range(self._partitions)
        ]
        return {
            "groups": [
                {
                    "group_id": name,
                    "topics": [{"name": topic, "partitions": partitions} for topic in topics],
                    "error_code": 0,
                }
                for name, topics in self._groups.items()
            ]
        }

    def _ListOffsets(self, request: Any) -> Any:  # noqa: N802
        is_end = request.topics[0].partitions[0].timestamp == -1
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": each.partition_index,
                            "error_code": 0,
                            "timestamp": -1,
                            "offset": self._end(each.partition_index) if is_end else 0,
                            "leader_epoch": 0,
                        }
                        for each in topic.partitions
                    ],
                }
                for topic in request.topics
            ]
        }

    def _end(self, partition: int) -> int:
        if not self.keeps_up:
            return 1_000_000 + partition
        return self.committed + partition + (partition % 2) * (1 + self.committed // 1000 % 5)


def _serve(connection: socket.socket, answers: _Answers) -> None:
    requests = RequestFrames()
    with connection:
        while data := connection.recv(1 << 20):
            for request in requests.feed(data):
                connection.sendall(answers.of(request))


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answers = _Answers(listener.getsockname()[1], *map(int, sys.argv[1:5]))

        def accept() -> None:
            while True:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=_serve, args=(connection, answers), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        print(listener.getsockname()[1], flush=True)
        for line in sys.stdin:
            answers.take(line.strip())
            print("taken", flush=True)


if __name__ == "__main__":
    main()
