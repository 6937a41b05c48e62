"""Each of several hosts shows one fleet of Spark workers, and the loss of a host loses no message.

tests/integration/test_hosts.py has hosts that are killed, frozen and upgraded, without Spark.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.certificates import make_certificate
from tests.conftest import eventually
from tests.servers.redis_server import RedisServer

pytestmark = pytest.mark.timeout(400)

WORKERS = {"a/worker-0", "b/worker-0"}
HOSTS = """\
tls_certificate = "{folder}/server.pem"
read_token_file = "{folder}/read-token"

[hosts]
name = "{name}"
url = "https://127.0.0.1"
ca_file = "{folder}/cert.pem"
token_file = "{folder}/read-token"
"""


@pytest.fixture
def hosts(short_dir: Path, make_fleet: MakeFleet, redis_server: RedisServer) -> list[Fleet]:
    make_certificate(short_dir)
    (token := short_dir / "read-token").touch(0o600)
    token.write_text("a-token-that-may-only-read\n")
    fleets: list[Fleet] = []
    for name in "ab":
        more: dict[str, Any] = {
            "storage": f'mode = "redis"\nurl = "{redis_server.url}"',
            "beside": next(iter(fleets), None),
        }
        fleets.append(make_fleet(workers=1, http=HOSTS.format(folder=short_dir, name=name), **more))
        fleets[-1].start()
    return fleets


@pytest.mark.shows("any host shows all hosts; after one is killed 0 lost, 0 twice")
def test_a_host_with_spark_workers_that_is_killed_is_missed_and_nothing_is_lost(hosts: list[Fleet]) -> None:
    first, second = hosts
    eventually(lambda: first.owners() == second.owners() == WORKERS, START_SECONDS, "both show both workers")
    load = first.load(rate=500)
    before = {row["partition"]: row["current_offset"] or 0 for row in second.offsets().values()}
    eventually(
        lambda: all((row["current_offset"] or 0) > before[p] for p, row in first.offsets().items()), SETTLE_SECONDS
    )

    others = psutil.Process(second.pid).children(recursive=True)
    second.kill()
    for each in others:
        with suppress(psutil.NoSuchProcess):
            each.kill()

    lost = "host b has left the group of masters without notice"
    eventually(lambda: lost in first.kctl("status", exit_code=None).stdout, SETTLE_SECONDS, "it is missed")
    eventually(lambda: first.owners() == {"a/worker-0"}, SETTLE_SECONDS, "its partitions have moved")
    first.finish(load)
    eventually(first.is_caught_up, SETTLE_SECONDS, "everything is stored and committed")
    first.stored_once()
