"""Another user of the machine, or files of that user, cannot affect a worker, nor call the master.

The same of an agent's socket is in tests/integration/test_agent_socket.py; that run_dir is rejected with a wrong owner
or mode, in tests/integration/test_refused_start.py; the rules one by one, in tests/unit/agent/test_paths.py.
"""

import json
import os
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import chdir, closing
from pathlib import Path

import psutil
import pytest

from kctl.config.load import load
from kctl.master.launch import worker_settings
from kctl_agent.worker.settings import parse
from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.conftest import eventually
from tests.integration.members import Member
from tests.processes import command_line
from tests.stranger import KCTL, NOBODY, answer_to_nobody, needs_root, run_as_nobody, taken_of_a_line

pytestmark = pytest.mark.timeout(120)

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
"""  # sends bytes to a port and prints what comes back within three seconds


@pytest.fixture(scope="module")
def planted(shared_dir: Path) -> Path:
    """A working directory with modules named as the libraries, which leave a trace when they run."""
    folder = shared_dir / "cwd"
    for package in ("kctl", "kctl_agent", "kctl_agent/worker", "kctl_agent/sinker", "pyspark", "py4j", "kafka"):
        (folder / package).mkdir(parents=True, exist_ok=True)
        for name in ("__init__.py", "__main__.py", "daemon.py"):
            (folder / package / name).write_text(PLANTED.format(trace=str(shared_dir / "trace")))
    return folder


@pytest.fixture(scope="module")
def fleet(planted: Path, make_shared_fleet: MakeFleet) -> Iterator[Fleet]:
    fleet = make_shared_fleet(
        partitions=1,
        kafka="static_membership = true",
        workers_more='transform = "cleaning:clean"',
        spark_conf=f'"spark.hadoop.fs.s3a.secret.key" = "{SECRET}"',
    )
    (fleet.directory / "cleaning.py").write_text(TRANSFORM)
    umask = os.umask(0o022)  # as most systems have it
    with chdir(planted):
        fleet.start()
    eventually(lambda: fleet.is_running("worker-0"), START_SECONDS, "the worker runs")
    fleet.send(10)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "everything is stored")
    yield fleet
    os.umask(umask)


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


def test_nothing_in_the_working_directory_is_run_but_the_transform_beside_the_file(
    fleet: Fleet, shared_dir: Path
) -> None:
    assert not (shared_dir / "trace").exists()
    assert (fleet.directory / "seen").read_text() == f"{SECRET} 512m", "the JVM has its conf"
    assert fleet.audit().stored == 10, "the executors have imported the transform's module"


@pytest.mark.shows("another user can call neither PySpark's callbacks nor Spark's RPC, nor the engine's ports")
@needs_root
def test_another_user_can_call_nothing_that_listens(fleet: Fleet) -> None:
    [worker, *_] = fleet.family("worker-0")
    of_worker, of_jvm = ports(worker), ports(fleet.jvm())  # a worker's are for callbacks
    call = b"c\np0\ncall\nn\ni7\ne\n"  # of the first proxy, foreachBatch's, with None and 7, as Py4J writes it
    find_class = b"r\nu\njava.lang.System\nrj\ne\n"  # `jvm.java.lang.System`
    to_spark = struct.pack(">QBQI", 26, 3, 1, 5) + b"hello"  # Spark's frame of an RpcRequest

    def replies(addresses: list[tuple[str, int]], *requests: bytes) -> set[bytes]:
        return {reply_to_nobody(address, sent) for address in addresses for sent in requests}

    assert of_worker
    assert len(of_jvm) >= (4 if fleet.has_engine else 3), "Spark's two, and a gateway for each process"
    assert replies(of_worker, call, b"A\nguessed\ne\n" + call) <= {b"", b"!xn\n"}, "a call is answered with more"
    read = replies(of_jvm, find_class, b"A\n" + b"0" * 64 + b"\ne\n" + find_class)
    assert not [reply for reply in read if reply.startswith(b"!")], "a gateway has read what was sent"
    of_spark = [reply for reply in replies(of_jvm, to_spark) if reply and not reply.startswith(b"!")]
    assert of_spark
    for reply in of_spark:
        assert b"Expected SaslMessage" in reply or b"Unknown challenge message" in reply, reply[:300]


@pytest.mark.shows("neither JVMs nor callbacks read a line of another user before the token")
@pytest.mark.shows("another user cannot fill the memory of a fleet's processes with an endless line")
@needs_root
def test_another_user_fills_no_memory_by_a_line_without_an_end(fleet: Fleet) -> None:
    listening = {address for process in fleet.family() for address in ports(process)}

    taken = {address: taken_of_a_line(*address) for address in listening}

    assert max(taken.values()) < 16 << 20, f"more than what the kernel keeps: {taken}"
    assert fleet.is_running("worker-0")


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


@pytest.fixture
def open_to_all(fleet: Fleet) -> Iterator[Callable[..., None]]:
    before: dict[Path, int] = {}

    def let(mode: int, *paths: Path) -> None:
        for path in paths:
            before.setdefault(path, stat.S_IMODE(path.stat().st_mode))
            path.chmod(mode)

    yield let
    for path, mode in before.items():
        path.chmod(mode)


@needs_root
def test_another_user_learns_that_the_fleet_is_not_theirs(fleet: Fleet, open_to_all: Callable[..., None]) -> None:
    open_to_all(0o755, fleet.directory.parent, fleet.directory)
    open_to_all(0o644, fleet.config)

    done = run_as_nobody(KCTL, "rpc", "kafka_lag", "-c", str(fleet.config))

    assert done.returncode == 5
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "not permitted" in done.stderr or "belongs to another user" in done.stderr


@needs_root
def test_the_kernel_identifies_strangers(fleet: Fleet, open_to_all: Callable[..., None]) -> None:
    run_dir = fleet.directory / "run"
    open_to_all(0o755, fleet.directory.parent, fleet.directory, run_dir)
    open_to_all(0o666, run_dir / "master.sock")

    assert answer_to_nobody(run_dir / "master.sock", "kafka_lag") == [str(NOBODY), "not_permitted", "True"]
    assert f"action=refused uid={NOBODY}" in fleet.log.read_text()
    assert fleet.ask("kafka_lag") is not None, "its own user is served as before"


def given_up(fleet: Fleet) -> dict[str, object] | None:
    fleet.check()
    status = fleet.workers().get("worker-0", {}).get("supervisor", {})
    return status if status.get("state") == "fatal" else None


@pytest.mark.shows("a worker whose `group.instance.id` another member takes ends for good, and loses no message")
def test_a_fenced_worker_ends_with_the_reason_and_is_not_started_again(fleet: Fleet) -> None:
    settings = parse(json.dumps(worker_settings(load(fleet.config, os.environ), "worker-0", []))).kafka
    with closing(Member(settings, "usurper")) as usurper:  # of another fleet
        eventually(lambda: given_up(fleet), START_SECONDS, "the worker is given up")
        fleet.send(10)
        eventually(lambda: usurper.partitions, SETTLE_SECONDS, "the other member has the partition")
        status = given_up(fleet)

    assert status is not None, "it is not started again"
    reason = f"another member of the group {fleet.group} has joined with the group.instance.id"
    assert reason in str(status["last_error"])
    assert status["restarts"] == 0
    fleet.kctl("start", "worker-0")
    eventually(fleet.is_caught_up, START_SECONDS, "the next one reads on")
    fleet.stored_once()
