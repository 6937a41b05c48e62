"""A socket of the protocol, an agent's or the master's, answers each caller in order and ends only callers that
misbehave."""

import os
import threading
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import pytest

from kctl.rpc.client import Reply
from kctl_agent.rpc.wire import encode
from tests.caller import Caller, question
from tests.conftest import eventually

SHORT_SECONDS = 0.2


class Served(Protocol):
    path: Path
    large: bytes

    def serve(self, **limits: Any) -> object: ...
    def stop(self) -> None: ...
    def connect(self) -> Caller: ...
    def is_answer(self, rpc: str, reply: Reply) -> bool: ...
    def are_counted(self, *mistakes: str) -> bool:
        """Whether the server has counted exactly these, once each; always true for a server that does not count."""
        ...


class Sockets:
    """A subclass's module has a fixture `served`."""

    @pytest.mark.shows("a request needs only `role`, `rpc` and `method`")
    def test_a_caller_that_sends_only_role_rpc_and_method_is_served(self, served: Served) -> None:
        served.serve()
        caller = served.connect()

        caller.send(encode({"role": 0, "rpc": "kafka_lag", "method": "getKafkaLag"}))

        reply = caller.read()
        assert reply.ok
        assert reply.id is None

    def test_pipelined_requests_are_answered_in_order_with_their_ids(self, served: Served) -> None:
        served.serve()
        caller = served.connect()
        asked = [(str(number), "ping" if number % 3 else "offset_checker") for number in range(2000)]

        sender = threading.Thread(target=caller.send, args=(b"".join(question(rpc, id_) for id_, rpc in asked),))
        sender.start()
        replies = [caller.read() for _ in asked]
        sender.join()

        assert [reply.id for reply in replies] == [id_ for id_, _ in asked]
        assert all(served.is_answer(rpc, reply) for reply, (_, rpc) in zip(replies, asked, strict=True))

    @pytest.mark.parametrize(
        ("data", "code"),
        [
            (b"\x00\x00\x00\x03abc", "bad_payload"),
            (b"\x00\x00\x00\x00", "bad_payload"),
            (b"\x00\x00\x00\x02[]", "bad_payload"),
            (b"GET / HTTP/1.1\r\n\r\n", "frame_too_large"),
            (b"\xff\xff\xff\xff", "frame_too_large"),
        ],
    )
    def test_a_malformed_frame_ends_only_its_connection(self, served: Served, data: bytes, code: str) -> None:
        served.serve()
        bad, good = served.connect(), served.connect()
        assert good.ask("ping").ok

        bad.send(question("ping", "1") + data)

        assert bad.read().id == "1"
        reply = bad.read()
        assert reply.error is not None
        assert (reply.id, reply.error.code) == (None, code)
        assert bad.is_ended()
        assert good.ask("ping").ok
        assert served.are_counted(f"a malformed frame ({code})")

    def test_above_the_bound_of_connections_callers_get_busy_until_one_leaves(self, served: Served) -> None:
        served.serve(max_connections=2)
        first, second = served.connect(), served.connect()
        assert first.ask("ping").ok
        assert second.ask("ping").ok

        third = served.connect()
        refusal = third.read()
        assert refusal.error is not None
        assert (refusal.error.code, refusal.error.retriable) == ("busy", True)
        assert "2 connections" in refusal.error.message
        assert third.is_ended()
        assert first.ask("ping").ok

        second.socket.close()
        third.socket.close()

        def is_served() -> bool:
            with Caller(served.path) as caller:
                return caller.ask("ping").ok

        eventually(is_served)

    @pytest.mark.shows("half a frame ends at the deadline; 200 callers are served, or rejected by a stated limit")
    def test_half_a_frame_and_silence_is_closed_at_the_deadline(self, served: Served) -> None:
        served.serve(frame_timeout_seconds=SHORT_SECONDS)
        silent, idle = served.connect(), served.connect()
        began = monotonic()

        silent.send(question("ping", "1") + question("ping", "2")[:-1])

        assert silent.read().id == "1"
        assert silent.is_ended()
        assert SHORT_SECONDS * 0.9 <= monotonic() - began < 5
        assert served.are_counted("an incomplete frame, then silence")
        assert idle.ask("ping").ok

    def test_a_silent_connection_is_closed_at_the_idle_timeout(self, served: Served) -> None:
        served.serve(idle_timeout_seconds=SHORT_SECONDS)
        caller = served.connect()
        assert caller.ask("ping").ok
        began = monotonic()

        assert caller.is_ended()

        assert SHORT_SECONDS * 0.9 <= monotonic() - began < 5
        assert served.are_counted()

    def test_a_peer_that_does_not_read_is_closed(self, served: Served) -> None:
        served.serve(write_timeout_seconds=SHORT_SECONDS)
        deaf, good = served.connect(), served.connect()

        deaf.send(served.large * 50)

        eventually(lambda: good.ask("ping").ok and served.are_counted("a peer did not read its reply"))

    @pytest.mark.alone
    def test_closing_is_prompt_ends_every_connection_and_removes_the_socket(self, served: Served) -> None:
        served.serve()
        callers = [served.connect() for _ in range(20)]
        assert all(caller.ask("ping").ok for caller in callers)
        began = monotonic()

        served.stop()
        served.stop()

        assert monotonic() - began < 1
        assert all(caller.is_ended() for caller in callers)
        assert os.listdir(served.path.parent) == []
