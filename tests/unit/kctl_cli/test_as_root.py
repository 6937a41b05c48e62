"""`sudo kctl …`: root opens and runs nothing of another user's with root's rights."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kctl_agent.storage.base import StoredOffset
from kctl_agent.storage.conformance.given import chunk, put
from kctl_agent.storage.file import FileStorage

if TYPE_CHECKING:
    from tests.unit.kctl_cli.conftest import Kctl

STRANGER = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it acts in a folder of another user")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of the fleet's user, who can reach it; with a configuration of theirs."""
    home = Path(tempfile.mkdtemp(prefix="kctl-home-"))
    (home / "kctl.toml").write_text('[kafka]\nbootstrap_servers = "b:1"\ngroup = "g"\ntopics = ["t"]\n')
    (home / "data").mkdir()
    for path in (home, home / "data", home / "kctl.toml"):
        os.chown(path, STRANGER, STRANGER)
    monkeypatch.setenv("KCTL_CONFIG", str(home / "kctl.toml"))
    yield home
    shutil.rmtree(home)


def filled(path: Path, owner: int) -> Path:
    storage = FileStorage(path)
    storage.prepare()
    storage.init_offsets([StoredOffset("t", 0, "A", 0)])
    put(storage, chunk(0, 10))
    storage.close()
    os.chown(path, owner, owner)
    return path


def test_what_root_leaves_beside_the_file_belongs_to_the_fleets_user(kctl: Kctl, home: Path) -> None:
    path = filled(home / "data" / "storage.sqlite", STRANGER)
    reader = sqlite3.connect(path)  # keeps the write-ahead log that kctl makes from being removed
    owners: set[int] = set()
    try:
        os.chown(path, STRANGER, STRANGER)

        assert "10" in kctl("storage", "status").out
        cleared = kctl("storage", "clear", "--pending", "--yes")

        owners = {each.stat().st_uid for each in home.rglob("*")}
    finally:
        reader.close()
    assert cleared.code == 0, cleared.err
    assert owners == {STRANGER}
    assert (os.geteuid(), os.getegid()) == (0, 0)
    assert '"uid": 0' in next(home.rglob("operations.jsonl")).read_text(), "the audit log names who it was"


def test_a_link_to_a_file_that_is_not_the_users_is_not_opened(kctl: Kctl, home: Path, short_dir: Path) -> None:
    target = filled(short_dir / "roots.sqlite", 0)
    before = target.read_bytes()
    (home / "data" / "storage.sqlite").symlink_to(target)
    os.chown(home / "data" / "storage.sqlite", STRANGER, STRANGER, follow_symlinks=False)

    ran = kctl("storage", "clear", "--pending", "--yes")

    assert ran.code == 1
    assert target.read_bytes() == before
    assert sorted(each.name for each in short_dir.iterdir()) == ["roots.sqlite"]


def test_files_of_several_users_are_refused(kctl: Kctl, home: Path) -> None:
    filled(home / "data" / "storage.sqlite", STRANGER - 1)

    ran = kctl("storage", "status")

    assert ran.code == 2
    assert f"belong to several users (uids {STRANGER - 1}, {STRANGER}): run this as the user of the fleet" in ran.err


WHO = """
import os
ids = os.getuid(), os.geteuid(), os.getgid()
raise ValueError(f"imported by {ids}, home {os.environ['HOME']}, secret {os.environ.get('AWS_SECRET_ACCESS_KEY')}")
"""


def test_the_handler_is_imported_by_the_fleets_user(kctl: Kctl, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-root")
    (home / "shop.py").write_text(WHO)
    config = (home / "kctl.toml").read_text()
    (home / "kctl.toml").write_text(f'{config}[sinkers]\ncount = 1\nhandler = "shop:handle"\n')

    ran = kctl("config", "check")

    assert ran.code == 2
    assert f"imported by {(STRANGER, STRANGER, STRANGER)}, home " in ran.err
    assert "secret None" in ran.err
    assert f"home {os.environ['HOME']}," not in ran.err


def test_where_configuration_and_code_are_roots_the_fleets_folders_name_its_user(kctl: Kctl, home: Path) -> None:
    """As in /etc/kctl, with the folders that systemd makes."""
    (home / "shop.py").write_text(WHO)
    config = (home / "kctl.toml").read_text()
    (home / "kctl.toml").write_text(f'{config}[sinkers]\ncount = 1\nhandler = "shop:handle"\n')
    home.chmod(0o755)
    for path in (home, home / "kctl.toml"):
        os.chown(path, 0, 0)

    assert f"imported by {(STRANGER, STRANGER, STRANGER)}" in kctl("config", "check").err

    os.chown(home / "shop.py", STRANGER - 1, STRANGER - 1)
    refused = kctl("config", "check")
    assert refused.code == 2
    assert f"belong to several users (uids {STRANGER - 1}, {STRANGER})" in refused.err


def test_a_link_in_place_of_a_log_is_not_followed(kctl: Kctl, home: Path, short_dir: Path) -> None:
    secret, logs = short_dir / "roots-alone", home / "logs"
    secret.touch(0o600)
    secret.write_text("secret\n")
    logs.mkdir()
    (logs / "worker-0.log").symlink_to(secret)
    for path in (logs, logs / "worker-0.log"):
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)

    ran = kctl("logs", "worker-0")

    assert (ran.code, ran.out) == (1, "")
    assert f"the log {logs / 'worker-0.log'} cannot be read: it is a symbolic link" in ran.err


def test_a_table_is_used_by_a_process_that_has_become_the_fleets_user(kctl: Kctl, home: Path) -> None:
    """What it writes is that user's, and for nobody else."""
    table = home / "orders"
    for number in range(3):
        write_deltalake(table, pa.table({"v": [number]}), mode="append")
    for path in table.rglob("*"):
        os.chown(path, STRANGER, STRANGER)
    os.chown(table, STRANGER, STRANGER)
    before = set(home.rglob("*"))
    with (home / "kctl.toml").open("a") as config:
        config.write(f'[storage]\nmode = "lake"\nuri = "file://{table}"\n')

    ran = kctl("storage", "optimize")

    assert "became 1 file" in ran.out, ran.err
    made = [path.stat() for path in home.rglob("*") if path not in before]
    assert made
    assert {found.st_uid for found in made} == {STRANGER}
    assert not any(found.st_mode & 0o077 for found in made)
    assert '"uid": 0' in next(home.rglob("operations.jsonl")).read_text(), "the audit log names who it was"


def test_a_file_of_keys_that_is_roots_is_not_read_for_another_users_fleet(
    kctl: Kctl, home: Path, short_dir: Path
) -> None:
    keys = short_dir / "credentials"
    keys.touch(0o600)
    keys.write_text("[default]\naws_access_key_id = of-root\naws_secret_access_key = of-root\n")
    with socket.create_server(("127.0.0.1", 0)) as server, (home / "kctl.toml").open("a") as config:
        config.write(
            f'[storage]\nmode = "lake"\nuri = "s3://bucket/orders"\ncredentials_file = "{keys}"\n'
            f'endpoint = "http://127.0.0.1:{server.getsockname()[1]}"\n'
        )
        config.flush()

        ran = kctl("storage", "status")

        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert ran.code == 2
    assert f"{keys} (storage.credentials_file) cannot be read: Permission denied" in ran.err


SECRETS = {
    "storage.credentials_file": '[storage]\nmode = "lake"\nuri = "s3://bucket/orders"\ncredentials_file = "secret"\n',
    "kafka.sasl_password_file": '[kafka]\nsecurity_protocol = "SASL_SSL"\nsasl_username = "u"\n'
    'sasl_password_file = "secret"\n',
    "spark.auth_secret_file": '[spark]\nauth_secret_file = "secret"\n',
    "http.token_file": '[http]\ntoken_file = "secret"\n',
}


@pytest.mark.parametrize("setting", SECRETS)
def test_config_check_opens_no_file_that_the_fleets_user_could_not(
    kctl: Kctl, home: Path, short_dir: Path, setting: str
) -> None:
    """What root alone may read would be described by the sentences that refuse it."""
    secret, kafka = short_dir / "roots-alone", (home / "kctl.toml").read_text()
    secret.touch(0o600)
    secret.write_text("[of-root]\nhunter2 = of-root\n")
    (home / "secret").symlink_to(secret)
    text = SECRETS[setting]
    (home / "kctl.toml").write_text(text.replace("[kafka]\n", kafka) if "[kafka]" in text else kafka + text)

    ran = kctl("config", "check")

    assert (ran.code, ran.out) == (2, "")
    assert setting in ran.err
    assert "cannot be read" in ran.err
    assert "Permission denied" in ran.err
    assert "of-root" not in ran.err
    assert (os.geteuid(), os.getegid()) == (0, 0)


def test_config_check_takes_the_fleets_user_for_the_owner_of_its_folders(kctl: Kctl, home: Path) -> None:
    """Also where the table alone shows who that is."""
    (home / "lake" / "orders").mkdir(parents=True)
    (home / "roots").mkdir()
    config = (home / "kctl.toml").read_text()
    (home / "roots" / "kctl.toml").write_text(f'{config}[storage]\nmode = "lake"\nuri = "file://{home}/lake/orders"\n')
    for path in (home / "lake", home / "lake" / "orders"):
        os.chown(path, STRANGER, STRANGER)

    assert kctl("config", "check", "-c", str(home / "roots" / "kctl.toml")).err == ""

    os.chown(home / "lake" / "orders", STRANGER - 1, STRANGER - 1)
    refused = kctl("config", "check", "-c", str(home / "roots" / "kctl.toml"))
    assert refused.code == 2
    assert f"belong to several users (uids {STRANGER - 1}, {STRANGER})" in refused.err


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "SSL_CERT_FILE"])
def test_roots_environment_is_not_that_of_the_process_that_uses_another_users_storage(
    kctl: Kctl, home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    given: list[dict[str, str]] = []
    popen = subprocess.Popen

    def seen(command: tuple[str, ...], *, env: dict[str, str], **options: Any) -> subprocess.Popen[bytes]:
        given.append(env)
        return popen(command, env=env, **options)

    monkeypatch.setenv(name, "of-root")
    monkeypatch.setattr(subprocess, "Popen", seen)
    filled(home / "data" / "storage.sqlite", STRANGER)

    assert kctl("storage", "status").code == 0

    assert [name in env for env in given] == [False]
