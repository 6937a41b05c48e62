from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.command_lines import Kctl

S3 = 'uri = "s3://bucket/orders"\ncredentials_file = "keys"\nendpoint = "http://127.0.0.1:1"'
KEYS = "[default]\naws_access_key_id = a\naws_secret_access_key = b\n"


def written(folder: Path, storage: str) -> str:
    path = folder / "kctl.toml"
    path.write_text(
        '[kafka]\nbootstrap_servers = "b:1"\ngroup = "g"\ntopics = ["t"]\n[storage]\nmode = "lake"\n' + storage
    )
    return str(path)


def test_a_table_whose_folder_and_keys_are_there_can_be_used(kctl: Kctl, short_dir: Path) -> None:
    (short_dir / "keys").write_text(KEYS)
    (short_dir / "keys").chmod(0o600)

    for storage in (S3, f'uri = "{(short_dir / "orders").as_uri()}"'):
        path = written(short_dir, storage)
        ran = kctl("config", "check", "--offline", "-c", path)
        assert (ran.code, ran.out, ran.err) == (0, f"{path} can be used\n", "")


@pytest.mark.parametrize(
    ("content", "mode", "complaint"),
    [
        (None, 0o600, "keys (storage.credentials_file) cannot be read: No such file or directory"),
        (KEYS, 0o644, "chmod o= "),
        ("hello", 0o600, "is not a credentials file"),
        ("[prod]\naws_access_key_id = a\n", 0o600, "it needs `[default]` and the lines `aws_access_key_id = …`"),
        ("[default]\n", 0o600, "it needs `[default]` and the lines `aws_access_key_id = …`"),
    ],
)
def test_bad_keys_are_rejected(content: str | None, mode: int, complaint: str, kctl: Kctl, short_dir: Path) -> None:
    if content is not None:
        (short_dir / "keys").write_text(content)
        (short_dir / "keys").chmod(mode)
    path = written(short_dir, S3)

    checked, status = kctl("config", "check", "--offline", "-c", path), kctl("storage", "status", "-c", path)

    assert (checked.code, status.code, checked.out) == (2, 2, "")
    assert complaint in checked.err
    assert complaint in status.err
    assert checked.err.count("\n") == 1


@pytest.mark.parametrize(
    ("storage", "module", "complaint"),
    [
        ('uri = "file:///srv/t"', "deltalake", 'storage.mode = "lake" needs deltalake: pip install deltalake'),
        ('uri = "s3://bucket/t"', "obstore", "storage.uri = s3://… needs obstore: pip install obstore"),
    ],
)
def test_a_package_that_is_missing_is_named_as_pip_installs_it(
    storage: str, module: str, complaint: str, kctl: Kctl, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name == module or name.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("kctl_agent.storage.kinds.find_spec", lambda name: None if name == module else object())
    path = written(short_dir, storage)

    for words in (("config", "check", "--offline"), ("storage", "status"), ("storage", "dead", "list")):
        ran = kctl(*words, "-c", path)
        assert (ran.code, complaint in ran.err, "defect" in ran.err) == (2, True, False)


def test_a_folder_that_cannot_have_the_table_is_rejected(kctl: Kctl, short_dir: Path) -> None:
    (short_dir / "file").touch()
    named = {
        "none/orders": f"the folder {short_dir / 'none'}, in which the table of storage.uri is to be made, does not "
        f"exist: mkdir -p {short_dir / 'none'}",
        "file": "file (storage.uri) is no folder: name another",
        "file/orders": "file, in which the table of storage.uri is to be made, is no folder",
        "a[b": "(storage.uri) has a `[`, which delta-rs cannot open",
        "a%b": "(storage.uri) has a `%`, which delta-rs cannot open",
    }

    for name, complaint in named.items():
        ran = kctl("config", "check", "--offline", "-c", written(short_dir, f'uri = "{(short_dir / name).as_uri()}"'))
        assert (ran.code, complaint in ran.err) == (2, True), ran.err
    assert sorted(each.name for each in short_dir.iterdir()) == ["file", "kctl.toml"]


@pytest.mark.parametrize(
    "uri",
    [
        "file:////",
        "file:///.",
        "file:///..",
        "file:///tmp/orders/..",
        "file:///tmp/a%00b",
        "file:///tmp/a%0Ab",
        "s3://b-1/.",
        "s3://b-1/a/../b",
    ],
)
def test_a_uri_without_a_folder_of_its_own_is_rejected(kctl: Kctl, short_dir: Path, uri: str) -> None:
    path = written(short_dir, f'uri = "{uri}"')

    for words in (("config", "check", "--offline"), ("storage", "status")):
        ran = kctl(*words, "-c", path)
        assert (ran.code, ran.out) == (2, "")
        assert f"storage.uri is {uri}, which names no folder of its own: write its path from the root on" in ran.err


@pytest.mark.shows("unusable folders, endpoints, keys and packages of a table are rejected before the start")
@pytest.mark.parametrize(
    ("more", "named"),
    [
        ('endpoint = "http://[::1"', "the endpoint http://[::1 (storage.endpoint, or AWS_ENDPOINT_URL)"),
        ('endpoint = "http://127.0.0.1:99999"', "the endpoint http://127.0.0.1:99999"),
        ('endpoint = "http://127.0.0.1:abc"', "the endpoint http://127.0.0.1:abc"),
        ('endpoint = "http://%zz"', "the endpoint http://%zz"),
        ('endpoint = "http://h]:1"', "the endpoint http://h]:1"),
        ('region = "\\n"', "'\\n' (storage.region, or AWS_REGION) is not the name of a region"),
        ('region = "x y"', "'x y' (storage.region"),
    ],
)
def test_an_endpoint_that_makes_obstore_panic_is_rejected(kctl: Kctl, short_dir: Path, more: str, named: str) -> None:
    path = written(short_dir, f'uri = "s3://bucket/orders"\n{more}')

    for words in (("config", "check", "--offline"), ("storage", "status")):
        ran = kctl(*words, "-c", path)
        assert (ran.code, ran.out, named in ran.err, ran.err.count("\n")) == (2, "", True, 1), ran.err


def test_endpoints_of_the_environment_are_checked(kctl: Kctl, short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://u:hunter2@[::1")

    ran = kctl("config", "check", "--offline", "-c", written(short_dir, 'uri = "s3://bucket/orders"'))

    assert (ran.code, "(storage.endpoint, or AWS_ENDPOINT_URL) is not a URL" in ran.err, "hunter2" in ran.err) == (
        2,
        True,
        False,
    )
