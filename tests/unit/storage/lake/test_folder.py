import errno
import os
import threading
from pathlib import Path

import pytest

from kctl_agent.storage.base import StorageMisconfigured, TableRefused
from kctl_agent.storage.lake.delta.table import LakeTable
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.folder.s3 import S3Folder
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.storage.object_store import StoreKeys
from tests.conftest import raising
from tests.lake_tables import opened


def test_a_file_is_ours_if_the_server_linked_it_silently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS repeats the request, and the server rejects the repetition: link(2)."""
    link = os.link

    def repeated(old: Path, new: Path) -> None:
        link(old, new)
        link(old, new)

    monkeypatch.setattr(os, "link", repeated)
    folder = LocalFolder(tmp_path)

    assert folder.create("a", b"1")
    assert not folder.create("a", b"2")
    assert folder.read("a") == b"1"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
@pytest.mark.parametrize("is_there", [False, True])
def test_hard_links_are_demanded(path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_there: bool) -> None:
    if is_there:
        path.mkdir()
    monkeypatch.setattr(os, "link", raising(OSError(number, os.strerror(number))))

    with pytest.raises(TableRefused, match="has no hard links, but kctl commits a batch by a hard link"):
        LakeStorage(LocalFolder(path)).prepare()

    assert os.listdir(path.parent) == ([path.name] if is_there else [])


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.EACCES])
def test_an_unlistable_folder_is_no_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    LocalFolder(tmp_path).write("day=a/file", b"1")
    LocalFolder(tmp_path).write("day=b/file", b"1")
    scan = os.scandir

    def scanned(path: str) -> object:
        if os.fspath(path).endswith("day=b"):
            raise OSError(number, os.strerror(number), path)
        return scan(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", scanned)
        with pytest.raises(OSError, match=os.strerror(number)):
            list(LocalFolder(tmp_path).files())
    assert [file.name for file in LocalFolder(tmp_path / "day=a").files()] == ["file"]
    assert list(LocalFolder(tmp_path / "day=c").files()) == []


def test_a_folder_that_is_just_tried_or_read_only_is_not_rejected(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path / "_kctl-0").mkdir(parents=True)  # another process tries the folder at that moment
    opened(path)

    monkeypatch.setattr(os, "mkdir", raising(PermissionError(errno.EACCES, "Permission denied")))

    LakeStorage(LocalFolder(path)).prepare()


def test_a_table_that_was_just_made_outlasts_a_power_cut(path: Path, synced: list[Path]) -> None:
    opened(path)

    log = path / "_delta_log"
    assert {log / f"{0:020}.json", log, path, path.parent} <= set(synced)


@pytest.mark.shows("kctl never writes through a link; a folder that cannot be listed does not count as empty")
def test_a_file_is_written_through_no_link_that_is_there_already(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("of somebody else")
    (tmp_path / "table" / "_kctl").mkdir(parents=True)
    (tmp_path / "table" / "_kctl" / "vacuumed.new").symlink_to(victim)

    LocalFolder(tmp_path / "table").write("_kctl/vacuumed", b"now")

    assert victim.read_text() == "of somebody else"
    assert (tmp_path / "table" / "_kctl" / "vacuumed").read_bytes() == b"now"
    assert len(list((tmp_path / "table" / "_kctl").iterdir())) == 2


@pytest.mark.parametrize("place", ["/proc/orders", "/proc/self", "/sys/orders"])
def test_a_file_system_that_keeps_no_files_is_rejected(place: str) -> None:
    with pytest.raises(TableRefused, match=rf"^{place} \(storage\.uri\) is in a file system that keeps no files"):
        LakeStorage(LocalFolder(Path(place))).prepare()


def test_a_table_is_there_once_its_log_has_a_version(folder: S3Folder) -> None:
    """delta-rs cannot open this table, because the store belongs to another client."""
    table = LakeTable(folder)
    folder.write("_delta_log/_last_checkpoint", b"{}")
    assert not table.exists()

    folder.write("_delta_log/00000000000000000007.checkpoint.0000000001.0000000002.parquet", b"1")
    assert not table.exists(), "a half of one"
    folder.write("_delta_log/00000000000000000000.json", b"{}")

    assert table.exists()


def answers(monkeypatch: pytest.MonkeyPatch, *given: bool) -> None:
    """The store rejects one creation per answer, and has the object anyway if the answer is `True`."""
    created, left, one = S3Folder._created, list(given), threading.Lock()

    def faulty(folder: S3Folder, key: str, content: bytes) -> bool:
        with one:
            if not left:
                return created(folder, key, content)
            if left.pop(0):
                created(folder, key, content)
            return False

    monkeypatch.setattr(S3Folder, "_created", faulty)


def test_an_object_is_created_though_the_store_rejected_it(folder: S3Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a conflict (409) of two requests or a lost reply, the object exists when the request is repeated."""
    answers(monkeypatch, True)
    folder.check()
    assert list(folder.files()) == []

    answers(monkeypatch, False, False)
    assert folder.create("a.json", b"ours")
    answers(monkeypatch, False, True)
    assert folder.create("b.json", b"ours")
    assert not folder.create("b.json", b"theirs")

    answers(monkeypatch, *[False] * 100)
    with pytest.raises(OSError, match=r"refuses 5 times to make c\.json, which is not there"):
        folder.create("c.json", b"ours")


@pytest.mark.parametrize("secret", ["one\n two", "schlüssel", "a\x00b", "a b", ""])
@pytest.mark.parametrize("name", ["aws_access_key_id", "aws_secret_access_key"])
def test_keys_that_no_header_can_hold_name_their_file(tmp_path: Path, name: str, secret: str) -> None:
    keys = {"aws_access_key_id": "id", "aws_secret_access_key": "secret", name: secret}
    path = tmp_path / "credentials"
    path.touch(0o600)
    path.write_text("[default]\n" + "".join(f"{each} = {text}\n" for each, text in keys.items()))

    with pytest.raises(StorageMisconfigured, match=r"credentials .* has an empty key, or a key that") as raised:
        StoreKeys.read(path)

    assert secret == "" or secret not in str(raised.value)


def test_what_a_server_answers_is_one_line_and_missing_keys_are_not_blamed_on_it(folder: S3Folder) -> None:
    shown = "Slow Down: wait 2026-01-01 action=forged line"
    answer = "<Code>Slow\nDown</Code>\n<Message>wait\r\n2026-01-01 action=forged\u2028line</Message>"

    assert folder.explain(Exception(answer)) == f"http://127.0.0.1:1 answers {shown}"
    for answer in ("Server returned non-2xx status code: 403 Forbidden: ", "error sending request"):
        asked = f"Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1s - {answer}"
        assert folder.explain(Exception(asked)) == (
            "no keys for http://127.0.0.1:1 were found: this machine has no role that provides them, so set "
            "storage.credentials_file, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )


@pytest.mark.parametrize("is_local", [True, False])
def test_a_file_above_the_limit_of_its_reader_is_not_read(tmp_path: Path, folder: S3Folder, *, is_local: bool) -> None:
    place = LocalFolder(tmp_path) if is_local else folder
    place.write("a", b"12")

    assert place.read_stamped("a", 2)[0] == b"12"
    with pytest.raises(OSError, match="larger than") as raised:
        place.read_stamped("a", 1)
    assert raised.value.filename == f"{place}/a"
