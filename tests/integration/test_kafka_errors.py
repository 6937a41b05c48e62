"""Each fault between `kctl kafka` and a real broker gives one sentence with Kafka's error name, and an exit code."""

import json
import socketserver
import threading
import tomllib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest
import tomli_w

from kctl.config.load import load
from kctl.kafka.client.access import of_fleet
from kctl.kafka.polls.cluster_reader import ClusterReader
from kctl.master.launch import worker_settings
from kctl_agent.worker.consumer_group.membership import Membership
from kctl_agent.worker.offsets.brokers import Brokers
from kctl_agent.worker.settings import parse
from tests.command_lines import Kctl, run_here, run_process
from tests.conftest import eventually
from tests.meanwhile import serving
from tests.servers import topics
from tests.servers.secured_broker import PASSWORD, SecuredBroker

pytestmark = [
    pytest.mark.usefixtures("collected_here"),
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),  # kafka-python's sockets of failed connects
]


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredBroker]:
    with SecuredBroker.running() as made:
        topics.create_topic(made.plain, "orders", 2)
        topics.create_topic(made.plain, "small", 1, {"max.message.bytes": "1000"})
        yield made


@pytest.fixture
def kctl(secured: SecuredBroker, capfd: pytest.CaptureFixture[str]) -> Kctl:
    contexts = ("--config", str(secured.write_contexts()))
    return lambda command, *words: run_here(capfd, "kafka", command, *(() if "-b" in words else contexts), *words)


MECHANISMS = ["tls", "boss-PLAIN", "boss-SCRAM-SHA-256", "boss-SCRAM-SHA-512", "boss-OAUTHBEARER"]


@pytest.mark.shows("`kctl kafka`, worker and master use TLS, SASL PLAIN, SCRAM, OAUTHBEARER; no password is shown")
@pytest.mark.parametrize("context", MECHANISMS)
def test_commands_workers_and_masters_use_tls_and_every_mechanism(
    kctl: Kctl, secured: SecuredBroker, context: str
) -> None:
    contexts = secured.write_contexts()
    produced = kctl("produce", "--context", context, "-t", "orders", "-p", "1", f"by {context}", "-o", "json")
    offset = str(produced.rows[0]["offset"])
    consumed = kctl("consume", "--context", context, "-t", "orders", "-p", "1", "--from", offset, "-n", "1")
    reset = kctl("reset-offsets", "--context", context, "-g", context, "-t", "orders", "--to", "latest", "--execute")
    # a new process imports only what it needs of kafka-python
    words = ["lag", "--config", str(contexts), "--context", context, "-g", context, "-o", "json"]
    lag = run_process("kafka", *words)

    assert (produced.code, consumed[:2]) == (0, (0, f"by {context}\n")), consumed
    assert (reset.code, lag.returncode) == (0, 0), lag
    assert [row["lag"] for row in json.loads(lag.stdout)["rows"]] == [0, 0]

    file = secured.directory / "kctl.toml"
    settings_of = tomllib.loads(contexts.read_text())["contexts"][context]
    file.write_text(tomli_w.dumps({"kafka": {"group": context, "topics": ["orders"], **settings_of}}))
    config = load(file, {})
    settings = parse(json.dumps(worker_settings(config, "worker-0", [])))
    assert PASSWORD not in f"{settings} {of_fleet(config)}"
    with (
        closing(Brokers(settings.kafka, "worker-0")) as worker,
        closing(ClusterReader.of_group(of_fleet(config), context, ["orders"], "read_uncommitted", 10)) as master,
        closing(Membership(settings.kafka, "worker-0", lambda _: {}, lambda: None, lambda _: None)) as member,
    ):

        def has_joined() -> bool:
            member.poll(0.1)
            return len(member.partitions) == 2

        eventually(has_joined, 30, "the worker's member has its partitions")
        found, _ = worker.found(member.partitions)
        reading = master.read()
    assert {(tp.topic, tp.partition): at.log_end for tp, at in found.items()} == reading.end
    assert (len(reading.end), reading.errors) == (2, {})


@pytest.mark.shows("an error of Kafka is one sentence with the broker's error name")
@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("groups", "--context", "tls-to-plain"), 23, "speaks plain, not TLS: set security_protocol to PLAINTEXT"),
        (("groups", "--context", "plain-to-tls"), 23, "speaks TLS, and was spoken to in plain"),
        (("groups", "--context", "plain-to-sasl"), 23, "it seems to demand SASL"),
        (("groups", "--context", "sasl-to-plain"), 23, "does not take SASL on this port"),
        (("groups", "--context", "tls-unknown-ca"), 17, "check tls_ca_file"),
        (("groups", "--context", "wrong-password"), 17, "SASL_AUTHENTICATION_FAILED"),
        (("groups", "--context", "wrong-password-plain"), 17, "SASL_AUTHENTICATION_FAILED"),
        (("groups", "--context", "nobody"), 17, "SASL_AUTHENTICATION_FAILED"),
        (("topic", "orders", "--context", "alice"), 18, "topic orders: TOPIC_AUTHORIZATION_FAILED"),
        (("lag", "-g", "billing", "--context", "alice"), 18, "group billing: GROUP_AUTHORIZATION_FAILED"),
        (("group", "billing", "--context", "alice"), 18, "group billing: GROUP_AUTHORIZATION_FAILED"),
        (("produce", "-t", "orders", "x", "--context", "alice"), 18, "topic orders: TOPIC_AUTHORIZATION_FAILED"),
        (("consume", "-t", "orders", "--context", "alice"), 18, "topic orders: TOPIC_AUTHORIZATION_FAILED"),
        (("lag", "-g", "nobody", "--context", "tls"), 19, "there is no group nobody (GROUP_ID_NOT_FOUND)"),
        (("topic", "nothing", "--context", "tls"), 11, "topic nothing: UNKNOWN_TOPIC_OR_PARTITION"),
        (("lag", "-g", "g", "-t", "nothing", "--context", "tls"), 11, "topic nothing: UNKNOWN_TOPIC_OR_PARTITION"),
        (("produce", "-t", "nothing", "x", "--context", "tls"), 11, "topic nothing: UNKNOWN_TOPIC_OR_PARTITION"),
        (("topic", "no such name!", "--context", "tls"), 11, "INVALID_TOPIC_EXCEPTION"),
        (("produce", "-t", "orders", "-p", "7", "x", "--context", "tls"), 20, "has no partition 7 (UNKNOWN_TOPIC_OR_"),
        (("list-offsets", "-t", "orders:7", "--context", "tls"), 20, "it has 2, from 0 to 1"),
        (("produce", "-t", "small", "x" * 2000, "--context", "tls"), 21, "topic small: MESSAGE_TOO_LARGE"),
    ],
)
def test_what_is_wrong_has_a_sentence_and_a_code(kctl: Kctl, words: tuple[str, ...], code: int, expected: str) -> None:
    got, _, err = kctl(*words)

    assert expected in err
    assert got == code
    assert err.startswith("kctl: ")
    assert err.count("\n") == 1


def test_a_controllers_port_is_no_broker(secured: SecuredBroker, kctl: Kctl) -> None:
    code, out, err = kctl("groups", "-b", secured.controller)

    assert out == ""
    assert code in (1, 10, 23)
    assert err.count("\n") == 1
    assert secured.controller in err


@pytest.mark.parametrize(
    ("answer", "seconds", "code", "sentence"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "5", 23, "what listens at {} is no Kafka broker"),
        (b"", "5", 23, "what listens at {} is no Kafka broker"),
        (None, "0.5", 10, "{}"),
    ],
)
def test_something_that_is_no_kafka_or_silent_is_reported_in_time(
    kctl: Kctl, answer: bytes | None, seconds: str, code: int, sentence: str
) -> None:
    with listening(answer) as address:
        ran = kctl("topics", "-b", address, "--timeout", seconds)

    assert (ran.code, ran.out) == (code, "")
    assert sentence.format(address) in ran.err


def test_the_first_server_that_answers_will_do(secured: SecuredBroker, kctl: Kctl) -> None:
    code, out, _ = kctl("topics", "-b", f"127.0.0.1:1,{secured.plain}", "-o", "json")

    assert code == 0
    assert {row["topic"] for row in json.loads(out)["rows"]} >= {"orders", "small"}


def test_no_password_is_ever_printed(kctl: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCTL_DEBUG", "1")
    for context in ("wrong-password", "wrong-password-plain", "alice"):
        _, out, err = kctl("groups", "--context", context)

        assert "correct horse" not in out + err


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.request.recv(100)
                ended.wait(20) if answer is None else self.request.sendall(answer)

    ended = threading.Event()
    with serving(server := socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)):
        yield f"127.0.0.1:{server.server_address[1]}"
        ended.set()
