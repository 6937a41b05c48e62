"""`sudo kctl …` acts only on files that no other user owns or can change."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl_agent.paths import process_identity
from tests.command_lines import Kctl

STRANGER = 65534
REFUSED = "and root does not act for others: sudo -u nobody kctl …"
KAFKA = '[kafka]\nbootstrap_servers = "127.0.0.1:1"\ngroup = "g"\ntopics = ["t"]\n'
HANDLER = '[sinkers]\ncount = 1\nhandler = "shop:handle"\n'
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it acts on files of another user")


@pytest.fixture
def home() -> Iterator[Path]:
    """Root's home with a configuration, in a shared folder such as /tmp."""
    home = Path(tempfile.mkdtemp(prefix="k-"))
    for folder in ("run", "data", "logs", "lake"):
        (home / folder).mkdir(mode=0o700)
    (home / "kctl.toml").write_text(f'{KAFKA}[storage]\nmode = "lake"\nuri = "file://{home}/lake"\n')
    (home / "data" / "storage.sqlite").touch()
    yield home
    shutil.rmtree(home)


def give_away(*paths: Path) -> None:
    for path in paths:
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


COMMANDS = (
    *("config check", "config show", "storage status", "storage clear --yes", "storage optimize", "kafka lag"),
    *("kafka reset-offsets -g g --topic t --to earliest", "start", "start --daemon", "stop", "status"),
    *("rpc kafka_lag", "top", "logs", "pause --all", "exporter"),
)


@pytest.mark.shows("root uses no configuration, folder, code or list of fleets of another user")
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_takes_the_configuration_of_another_user(kctl: Kctl, home: Path, command: str) -> None:
    imported = home / "imported"
    (home / "shop.py").write_text(f"open({str(imported)!r}, 'w')\ndef handle(messages): return []\n")
    (home / "kctl.toml").write_text(KAFKA + HANDLER)
    give_away(home, home / "kctl.toml")
    before = sorted(home.rglob("*"))

    ran = kctl("-c", str(home / "kctl.toml"), *command.split())

    assert (ran.code, ran.out, ran.err) == (2, "", f"kctl: {home} belongs to nobody, {REFUSED}\n")
    assert sorted(home.rglob("*")) == before


@pytest.mark.parametrize("place", ["run", "data", "logs", "lake", "data/storage.sqlite"])
def test_nor_folders_of_another_user_that_a_configuration_of_roots_names(kctl: Kctl, home: Path, place: str) -> None:
    for command in ("config show", "stop", "storage status"):
        assert REFUSED not in kctl("-c", str(home / "kctl.toml"), *command.split()).err
    give_away(home / place)

    for command in ("config show", "stop", "storage status"):
        ran = kctl("-c", str(home / "kctl.toml"), *command.split())
        assert (ran.code, ran.out, ran.err) == (2, "", f"kctl: {home / place} belongs to nobody, {REFUSED}\n")


@pytest.mark.parametrize("place", ["kctl.toml", "run", "data", "logs"])
def test_a_sticky_bit_does_not_excuse_a_folder_open_to_others(kctl: Kctl, home: Path, place: str) -> None:
    for mode, group in ((0o1777, 0), (0o770, STRANGER)):
        (home / place).chmod(mode)
        os.chown(home / place, 0, group)

        ran = kctl("config", "show", "-c", str(home / "kctl.toml"))

        assert (ran.code, ran.out) == (2, "")
        assert f"{home / place} has mode {mode:04o}, so other users can write to it" in ran.err
    (home / place).chmod(0o770)
    os.chown(home / place, 0, 0)
    assert kctl("config", "show", "-c", str(home / "kctl.toml")).code == 0


def test_a_configuration_of_roots_is_not_taken_by_a_way_that_another_user_can_change(kctl: Kctl, home: Path) -> None:
    """Another user could replace the link, or the folder, after the check and before the use."""
    strangers = home / "strangers"
    strangers.mkdir()
    (strangers / "link").symlink_to(home)
    (strangers / "fleet").mkdir()
    shutil.copy(home / "kctl.toml", strangers / "fleet")
    (home / "away").symlink_to(strangers / "link")
    give_away(strangers / "link", strangers)

    for way in (strangers / "link", strangers / "fleet", home / "away"):
        ran = kctl("config", "show", "-c", str(way / "kctl.toml"))
        assert (ran.code, ran.out, ran.err) == (2, "", f"kctl: {strangers} belongs to nobody, {REFUSED}\n")


def test_code_of_another_user_beside_a_configuration_of_roots_is_not_imported(kctl: Kctl, home: Path) -> None:
    (home / "kctl.toml").write_text(KAFKA + HANDLER)
    (home / "shop.py").write_text("raise ValueError('imported')\n")
    give_away(home / "shop.py")

    for command in ("config check", "start"):
        ran = kctl("-c", str(home / "kctl.toml"), *command.split())
        assert (ran.code, ran.err) == (2, f"kctl: {home / 'shop.py'} belongs to nobody, {REFUSED}\n")


def test_a_strangers_registry_is_ignored(kctl: Kctl, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = process_identity()
    entry = home / "runtime" / "fleets" / "kctl" / "1.json"
    entry.parent.mkdir(parents=True, mode=0o700)
    entry.write_text(
        f'{{"name": "f", "run_dir": "/r", "config": "/c", "pid": {own.pid}, "start_ticks": {own.start_ticks}}}'
    )
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "runtime" / "fleets"))  # `su` keeps this variable
    assert "/r/master.sock" in kctl("rpc", "kafka_lag").err
    give_away(home / "runtime")

    assert "/r/master.sock" not in kctl("rpc", "kafka_lag").err
