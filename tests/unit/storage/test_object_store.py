from __future__ import annotations

from pathlib import Path

import pytest

from kctl_agent.storage.base import StorageMisconfigured
from kctl_agent.storage.lake.folder.s3 import S3Folder
from kctl_agent.storage.object_store import ObjectStore, StoreKeys


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


def test_what_a_server_answers_is_one_line() -> None:
    folder = S3Folder(ObjectStore("bucket", "http://s3", "r"), "orders")
    answer = "<Code>Slow\nDown</Code>\n<Message>wait\r\n2026-01-01 action=forged\u2028line</Message>"

    assert folder.explain(Exception(answer)) == "http://s3 answers Slow Down: wait 2026-01-01 action=forged line"


def test_that_there_are_no_keys_is_not_blamed_on_the_endpoint() -> None:
    folder = S3Folder(ObjectStore("bucket", "http://s3", "r"), "orders")

    for answer in ("Server returned non-2xx status code: 403 Forbidden: ", "error sending request"):
        asked = f"Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1s - {answer}"
        assert folder.explain(Exception(asked)) == (
            "no keys for http://s3 were found: this machine has no role that gives them, so set "
            "storage.credentials_file, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
