"""Another user of the machine, or files of that user, cannot affect a worker.

Who may call the sockets of kctl is in test_who_may_call.py.
"""

from __future__ import annotations

import os
import shutil
import stat
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet
from tests.conftest import eventually
from tests.processes import command_line
from tests.servers.kafka_broker import KafkaBroker
from tests.stranger import NOBODY, needs_root, run_as_nobody, taken_of_a_line

SECRET = "hunter2-of-the-bucket"
TRANSFORM = """
import os

def clean(frame):
    def upper(batches):  # its module is imported by the executors
        yield from batches
    conf = frame.sparkSession.sparkContext.getConf()
    with open(os.path.join(os.path.dirname(__file__), "seen"), "w") as seen:
        seen.write(conf.get("spark.hadoop.fs.s3a.secret.key") + " " + conf.get("spark.driver.memory"))
    return frame.mapInArrow(kept, frame.schema)

def kept(batches):
    yield from batches
"""
PLANTED = """
import pathlib
pathlib.Path({trace!r}).write_text(__file__)
"""

_SEND = """
import errno
with socket.socket() as peer:
    peer.settimeout(3)
    peer.connect((sys.argv[1], int(sys.argv[2])))
    reply = b""
    try:
        peer.sendall(bytes.fromhex(sys.argv[3]))
        peer.shutdown(socket.SHUT_WR)
        while data := peer.recv(65536):
            reply += data
    except (ConnectionResetError, BrokenPipeError, TimeoutError):
        pass
    except OSError as error:
        if error.errno != errno.ENOTCONN:
            raise
print(os.getuid(), reply.hex())
"""
"""Sends bytes to a port and prints what comes back within three seconds."""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def planted(place: Path) -> Path:
    """A working directory with modules named as the libraries are, which leave a trace when they run."""
    folder = place / "cwd"
    for package in ("kctl", "kctl_agent", "kctl_agent/worker", "kctl_agent/sinker", "pyspark", "py4j", "kafka"):
        (folder / package).mkdir(parents=True, exist_ok=True)
        for name in ("__init__.py", "__main__.py", "daemon.py"):
            (folder / package / name).write_text(PLANTED.format(trace=str(place / "trace")))
    return folder


@pytest.fixture(scope="module")
def fleet(place: Path, planted: Path, broker: KafkaBroker) -> Iterator[Fleet]:
    """A worker whose transform is next to kctl.toml, started in the planted working directory."""
    directory = place / "fleet"
    directory.mkdir()
    (directory / "cleaning.py").write_text(TRANSFORM)
    fleet = Fleet(
        directory,
        broker,
        partitions=1,
        workers=1,
        workers_more='transform = "cleaning:clean"',
        spark_conf=f'"spark.hadoop.fs.s3a.secret.key" = "{SECRET}"',
    )
    before, umask = Path.cwd(), os.umask(0o022)  # as most systems have it
    os.chdir(planted)
    try:
        fleet.start()
        os.chdir(before)
        eventually(lambda: fleet.is_running("worker-0"), START_SECONDS, "the worker runs")
        fleet.send(10)
        eventually(fleet.is_caught_up, SETTLE_SECONDS, "everything is stored")
        yield fleet
    finally:
        os.chdir(before)
        os.umask(umask)
        fleet.close()
        print(fleet.log_tail())


@pytest.fixture(autouse=True)
def nothing_left_behind() -> None:
    """The fleet outlives a test here."""


def ports(process: psutil.Process) -> list[tuple[str, int]]:
    found = [each.laddr for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    return [(address.ip.removeprefix("::ffff:"), address.port) for address in found]


def reply_to_nobody(address: tuple[str, int], request: bytes) -> bytes:
    done = run_as_nobody(_SEND, address[0], str(address[1]), request.hex())
    assert done.stderr == ""
    uid, _, reply = done.stdout.strip().partition(" ")
    assert int(uid) == NOBODY
    return bytes.fromhex(reply)


def test_nothing_in_the_working_directory_is_run_but_the_transform_beside_the_file(fleet: Fleet, place: Path) -> None:
    assert not (place / "trace").exists()
    assert (fleet.directory / "seen").read_text() == f"{SECRET} 512m", "the JVM has its conf"
    assert fleet.audit().stored == 10, "the executors have imported the transform's module"


@pytest.mark.shows("another user can call neither PySpark's callbacks nor Spark's RPC, nor the engine's ports")
@needs_root
def test_another_user_cannot_call_what_spark_calls(fleet: Fleet) -> None:
    [worker, *_] = fleet.family("worker-0")
    listening = ports(worker)  # for callbacks, and PySpark's accumulators if the worker has its own driver
    call = b"c\np0\ncall\nn\ni7\ne\n"  # of the first proxy, foreachBatch's, with None and 7, as Py4J writes it

    replies = {
        address: (reply_to_nobody(address, call), reply_to_nobody(address, b"A\nguessed\ne\n" + call))
        for address in listening
    }

    assert listening
    assert {reply for both in replies.values() for reply in both} <= {b"", b"!xn\n"}, "a call is answered with more"


@needs_root
def test_another_user_gets_nothing_from_a_gateway_into_the_jvm(fleet: Fleet) -> None:
    find_class = b"r\nu\njava.lang.System\nrj\ne\n"  # `jvm.java.lang.System`, as Py4J writes it
    listening = ports(fleet.jvm())

    replies = {
        reply_to_nobody(address, sent)
        for address in listening
        for sent in (find_class, b"A\n" + b"0" * 64 + b"\ne\n" + find_class)
    }

    assert len(listening) >= (4 if fleet.has_engine else 3), "Spark's two, and a gateway for each process"
    assert not [reply for reply in replies if reply.startswith(b"!")], "a gateway has read what was sent"


@pytest.mark.shows("another user cannot fill the memory of a fleet's processes with an endless line")
@needs_root
def test_another_user_fills_no_memory_by_a_line_without_an_end(fleet: Fleet) -> None:
    listening = {address for process in fleet.family() for address in ports(process)}

    taken = {address: taken_of_a_line(*address) for address in listening}

    assert max(taken.values()) < 16 << 20, f"more than what the kernel keeps: {taken}"
    assert fleet.is_running("worker-0")


@needs_root
def test_another_user_cannot_speak_to_sparks_rpc_and_block_manager(fleet: Fleet) -> None:
    jvm = fleet.jvm()
    body = b"hello"
    request = struct.pack(">QBQI", 21 + len(body), 3, 1, len(body)) + body  # Spark's frame of an RpcRequest

    listening = ports(jvm)
    replies = {address: reply_to_nobody(address, request) for address in listening}

    assert len(listening) >= 2
    of_spark = [reply for reply in replies.values() if reply and not reply.startswith(b"!")]  # `!` is Py4J's, see above
    assert of_spark, replies
    for reply in of_spark:
        assert b"Expected SaslMessage" in reply or b"Unknown challenge message" in reply, reply[:300]


def test_the_settings_of_a_worker_are_on_no_command_line(fleet: Fleet) -> None:
    lines = [" ".join(command_line(process)) for process in fleet.family()]

    assert any("SparkSubmit" in line for line in lines)
    assert not [line for line in lines if SECRET in line]
    assert not [line for line in lines if fleet.topic in line.replace(str(fleet.directory), "")]


def test_what_kctl_writes_is_for_its_user_alone(fleet: Fleet) -> None:
    folders = [fleet.directory / "run", fleet.directory / "data" / "scratch"]
    found = [path for folder in folders for path in (folder, *folder.rglob("*")) if not path.is_symlink()]
    found += [fleet.directory / "logs" / "worker-0.log", *fleet.directory.glob("data/storage.sqlite*")]

    # Spark makes the jars in its folder executable for all, which does not make them readable.
    open_to_others = {str(path): oct(mode) for path in found if (mode := stat.S_IMODE(path.lstat().st_mode)) & 0o066}
    assert open_to_others == {}
