import os
import resource
import stat
from pathlib import Path

import pytest

import kctl.start.checks
from kctl.children import PRIVATE
from kctl.config.load import load
from kctl.errors import RunDirUnusable, StartError
from kctl.master.user_code import check_code
from kctl.start.checks import check_folders, make_folders, refusals
from kctl.start.master import announced
from kctl_agent.storage.lake.folder import LocalFolder
from tests.configurations import KAFKA, loaded


@pytest.fixture(autouse=True)
def _as_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's configuration has no such folder. tests/unit/kctl_cli/test_as_root.py tests root."""
    os.umask(PRIVATE)
    if os.geteuid() == 0:
        monkeypatch.setattr(os, "geteuid", lambda: 1)


@pytest.mark.shows("folders of another user or open to all are rejected; kctl's files are private")
def test_folders_are_private(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs").chmod(0o755)

    make_folders(loaded(tmp_path))

    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert [record.getMessage() for record in caplog.records] == [
        f"action=open_folder path={tmp_path / 'logs'} mode=0755: all users of this machine can read it"
    ]
    (tmp_path / "logs").chmod(0o770)
    make_folders(loaded(tmp_path))
    assert "its group can replace what is in it" in caplog.text


SHARED = f'{KAFKA}[storage]\npath = "shared/storage.sqlite"\n'
TABLE = f'{KAFKA}[storage]\nmode = "lake"\nuri = "file://FOLDER/shared/or%20ders"\n'
FOLDERS = (
    "",
    "/or ders",
    "/or ders/_kctl",
    "/or ders/_delta_log",
    "/or ders_dead_letters",
    "/or ders_dead_letters/_kctl",
)


@pytest.mark.parametrize(
    ("folder", "mode", "text", "refusal"),
    [
        *((name, 0o777, KAFKA, rf"{name} has mode 0777, all users .* chmod o-w") for name in ("data", "logs")),
        ("shared", 0o1777, SHARED, r"shared has mode 1777, all users can write to it: name a folder .* storage\.path$"),
        *(
            (f"shared{each}", 0o777, TABLE, rf"shared{each} has mode 0777, all users .*correct storage\.uri")
            for each in FOLDERS
        ),
    ],
)
def test_a_folder_open_to_everyone_is_rejected(tmp_path: Path, folder: str, mode: int, text: str, refusal: str) -> None:
    config = loaded(tmp_path, text.replace("FOLDER", str(tmp_path)))
    make_folders(config)
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / folder).chmod(mode)

    with pytest.raises(RunDirUnusable, match=refusal):
        make_folders(config)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    (tmp_path / "kctl.toml").write_text(TABLE.replace("FOLDER", str(tmp_path)).replace("or%20ders", "orders"))
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    return tmp_path / "shared"


@pytest.mark.shows("kctl creates a table's folders in /tmp before another user can, and follows no link")
def test_a_table_in_tmp_has_its_folders_first(shared: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = load(shared.parent / "kctl.toml", {})
    check_folders(config)
    assert list(shared.iterdir()) == []

    make_folders(config)

    assert {each.name: stat.S_IMODE(each.stat().st_mode) for each in shared.iterdir()} == {
        "orders": 0o700,
        "orders_dead_letters": 0o700,
    }
    assert caplog.records == []
    LocalFolder(shared / "orders").check()
    shared.chmod(0o777)
    with pytest.raises(
        RunDirUnusable, match=r"shared has mode 0777, all users can write to it: chmod o-w .*storage\.uri"
    ):
        check_folders(config)


HANDLER = f'{KAFKA}[sinkers]\ncount = 1\nhandler = "shop.orders:handle"\n'


@pytest.mark.shows("kctl runs no handler or transform that all users can change")
@pytest.mark.parametrize("exposed", ["shop", "shop/orders.py", "."])
def test_code_that_every_user_can_change_is_rejected(tmp_path: Path, exposed: str) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "orders.py").touch()
    config = loaded(tmp_path, HANDLER)
    check_code(config)
    (tmp_path / exposed).chmod(0o777)

    with pytest.raises(RunDirUnusable, match=r"has mode 0777, all users .* or correct sinkers\.handler"):
        check_code(config)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a link of another user")
@pytest.mark.parametrize("name", ["orders", "orders_dead_letters"])
def test_a_link_that_another_user_has_put_in_place_of_a_table_is_rejected(shared: Path, name: str) -> None:
    (shared.parent / "elsewhere").mkdir()
    (shared / name).symlink_to(shared.parent / "elsewhere")
    os.chown(shared / name, 65534, 65534, follow_symlinks=False)
    config = load(shared.parent / "kctl.toml", {})

    for check in (check_folders, make_folders):
        with pytest.raises(RunDirUnusable, match=rf"shared/{name} belongs to uid 65534"):
            check(config)


def test_a_kernel_that_shows_no_owners_of_connections_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kctl.start.checks, "are_shown", lambda: False)

    refusal = next(refusals(loaded(tmp_path)))

    assert isinstance(refusal, StartError)
    assert "modprobe tcp_diag" in str(refusal)


@pytest.mark.shows("an error about a full disk names the path")
def test_a_full_disk_is_named_with_the_path_that_could_not_be_written(tmp_path: Path) -> None:
    path = tmp_path / "kctl.toml"
    config = loaded(tmp_path)
    config.fleet.run_dir.mkdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # no file of this process can grow, as on a full disk
    try:
        with pytest.raises(RunDirUnusable) as refused, announced(config, path, "http://127.0.0.1:1"):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert str(refused.value) == f"{config.fleet.run_dir}/master.json cannot be written (File too large): " + (
        "correct fleet.run_dir"
    )
