"""SIGHUP to `kctl exporter`, and `kctl reload` of a master that collects all groups, with a real broker."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from kctl.config.load import read_document
from tests.conftest import eventually
from tests.exporters import Exporter, Samples, running_exporter
from tests.integration.conftest import Master, write_secret
from tests.meanwhile import Meanwhile
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker

TOKEN, NEW_TOKEN = "a-token-that-was-valid", "a-token-that-is-new"


class Reloaded:
    def __init__(self, exporter: Exporter, path: Path, servers: str) -> None:
        self.exporter = exporter
        self._path = path
        self.servers = servers

    def reload(self, clusters: tuple[str, ...] = ("main",), exporter: str = "", more: str = "") -> str:
        before = len(self.lines())
        write(self._path, self.servers, clusters, exporter, more)
        self.exporter.process.send_signal(signal.SIGHUP)
        eventually(lambda: len(self.lines()) > before, what="the reload has ended")
        return self.lines()[-1]

    def lines(self) -> list[str]:
        log = self.exporter.log.read_text().splitlines()
        return [line for line in log if "action=reloaded" in line or "action=reload_failed" in line]

    def groups(self, cluster: str = "main") -> set[str]:
        found = self.exporter.samples().of("kctl_group_status", "group", "status", cluster=cluster)
        return {group for group, _ in found}


def write(path: Path, servers: str, clusters: tuple[str, ...], exporter: str, more: str) -> None:
    tables = "".join(f'[clusters.{name}]\nbootstrap_servers = "{servers}"\n' for name in clusters)
    path.write_text(f"{tables}[exporter]\ninterval_seconds = 0.2\n{exporter}\n{more}")


@pytest.fixture
def reloaded(broker: KafkaBroker, short_dir: Path) -> Iterator[Reloaded]:
    servers = broker.bootstrap_servers
    for group in ("billing", "payments", "throw-away"):
        topics.commit(servers, group, "orders", {0: 0})
    path = short_dir / "exporter.toml"
    write(path, servers, ("main",), "", "")
    with running_exporter(short_dir, "-c", str(path)) as exporter:
        eventually(exporter.is_ready, what="it is polled")
        yield Reloaded(exporter, path, servers)


class Scrapes(Meanwhile):
    def __init__(self, exporter: Exporter, group: str) -> None:
        super().__init__(0.02)
        self._exporter = exporter
        self._group = group

    def turn(self) -> None:
        assert self._exporter.samples().lag(self._group, cluster="main")


@contextmanager
def never_without(exporter: Exporter, group: str) -> Iterator[None]:
    with Scrapes(exporter, group) as scrapes:
        yield
    assert scrapes.turns
    assert scrapes.wrong == []


@pytest.mark.shows("SIGHUP changes clusters, filters and tokens without a gap in other series")
def test_clusters_and_filters_are_added_changed_and_removed_without_a_gap_for_what_stays(reloaded: Reloaded) -> None:
    exporter = reloaded.exporter
    assert {"billing", "payments", "throw-away"} <= reloaded.groups()

    with never_without(exporter, "billing"):
        assert "added=other removed=-" in reloaded.reload(("main", "other"))
        eventually(lambda: "billing" in reloaded.groups("other"), what="the added cluster is polled")
        line = reloaded.reload(("main", "other"), 'groups_except = ["throw-*"]\nwithout_partitions = ["pay*"]')
        assert "changed=main,other" in line
        eventually(lambda: "throw-away" not in reloaded.groups(), what="what is denied now is gone")
        eventually(lambda: not exporter.samples().lag("payments", cluster="main"), what="its partitions have no series")
        assert "payments" in reloaded.groups()
        assert "removed=other" in reloaded.reload(("main",))
        assert 'cluster="other"' not in exporter.samples().page
        eventually(lambda: "throw-away" in reloaded.groups(), what="nothing is denied any more")
    assert json.loads(exporter.get("/api/v1/groups")[1])["clusters"][0]["cluster"] == "main"


def test_a_file_that_cannot_be_used_changes_nothing_and_is_rejected_in_one_sentence(reloaded: Reloaded) -> None:
    with never_without(reloaded.exporter, "throw-away"):
        for exporter, more, sentence in (
            ("nonsense = 1", "", "there is no key `nonsense` in [exporter]"),
            ('groups_except = ["/(/"]', "", "/(/ is not a regular expression"),
            ('groups_except = ["throw-*"]', '[http]\ntoken_file = "missing"', "missing"),
            ('groups_except = ["throw-*"', "", "exporter.toml: line "),
        ):
            line = reloaded.reload(("main", "other"), exporter, more)
            assert "action=reload_failed" in line
            assert sentence in line
            assert line.endswith("nothing changed")
    assert reloaded.groups("other") == set()
    assert "throw-away" in reloaded.groups()
    assert "action=reloaded" in reloaded.reload()


def test_tokens_are_rotated_and_a_cluster_with_other_servers_starts_over(reloaded: Reloaded, short_dir: Path) -> None:
    def status(token: str) -> int:
        return reloaded.exporter.get("/metrics", token)[0]

    tokens = write_secret(short_dir / "token", f"{TOKEN}\n")
    assert "http=tokens" in reloaded.reload(more='[http]\nread_token_file = "token"')
    assert (status(TOKEN), status(NEW_TOKEN)) == (200, 401)
    tokens.write_text(f"{NEW_TOKEN}\n")
    assert "http=tokens" in reloaded.reload(more='[http]\nread_token_file = "token"')
    assert (status(TOKEN), status(NEW_TOKEN)) == (401, 200)
    assert "http=tokens" in reloaded.reload()
    assert status("") == 200
    assert "a-token" not in reloaded.exporter.log.read_text()

    assert "changed=-" in reloaded.reload(more="[log]\nlevel = 'INFO'\n")

    reloaded.servers = "127.0.0.1:1"
    assert "changed=main" in reloaded.reload()

    assert reloaded.groups() == set()
    eventually(lambda: set(reloaded.exporter.samples().of("kctl_collect_up", "part").values()) == {0})
    assert reloaded.exporter.get("/readyz")[0] == 503


@pytest.mark.shows("with `exporter.all_groups` the master's page has every other group of its cluster")
def test_a_reload_changes_which_groups(reloaded: Reloaded, master: Callable[..., Master]) -> None:
    fleet = master(exporter={"interval_seconds": 0.2}, workers={"count": 1})
    own = fleet.config.parent.name

    def samples() -> Samples:
        return Samples(fleet.get("/metrics"))

    def groups() -> set[str]:
        # The fleet's own group has no such sample.
        return {group for (group,) in samples().of("kctl_group_info", "group")}

    def set_to(**settings: object) -> dict[str, Any]:
        fleet.config.write_text(
            tomli_w.dumps(read_document(fleet.config) | {"exporter": {"interval_seconds": 0.2} | settings})
        )
        return fleet.ended(fleet.ask("reload").result)

    assert groups() == set()
    assert "exporter.all_groups" in set_to(all_groups=True)["text"]
    eventually(lambda: {"billing", "payments", "throw-away"} <= groups(), what="all groups")
    assert set_to(all_groups=True, groups_except=["throw-*"])["state"] == "done"
    eventually(lambda: "throw-away" not in groups(), what="but those")
    assert samples().of("kctl_group_members", "cluster", group="billing") == {("default",): 0}
    assert len(samples().of("kctl_consumer_lag", "partition", group=own)) == 4
    assert own not in groups()
    failed = set_to(all_groups=True, groups_except=["/(/"])
    assert (failed["state"], "not a regular expression" in failed["text"]) == ("failed", True)
    assert "billing" in groups()
    set_to(all_groups=False)
    eventually(lambda: groups() == set(), what="none any more")
    assert fleet.stop() == 0
