from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kctl_agent.storage.base import StorageMisconfigured
from kctl_agent.storage.lake.delta.table import LakeTable
from kctl_agent.storage.lake.folder.s3 import S3Folder
from kctl_agent.storage.object_store import StoreKeys


def test_a_table_is_there_once_its_log_has_a_version(folder: S3Folder) -> None:
    """Even if delta-rs cannot open it, because the store belongs to another client."""
    table = LakeTable(folder)
    folder.write("_delta_log/_last_checkpoint", b"{}")
    assert not table.exists()

    folder.write("_delta_log/00000000000000000007.checkpoint.0000000001.0000000002.parquet", b"1")
    assert not table.exists(), "a half of one"
    folder.write("_delta_log/00000000000000000000.json", b"{}")

    assert table.exists()


def answers(monkeypatch: pytest.MonkeyPatch, *given: bool) -> None:
    """The store rejects one creation per answer; `True` if it has the object anyway."""
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
    """As in a conflict (409) of two requests, both rejected, or after a lost reply: the object exists when the request
    is repeated."""
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
            "no keys for http://127.0.0.1:1 were found: this machine has no role that gives them, so set "
            "storage.credentials_file, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
