import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_lines import Kctl, Ran
from tests.configurations import KAFKA
from tests.conftest import eventually, on_this_machine

SINKERS = '[sinkers]\ncount = 1\nhandler = "shop:handle"\n'
GOOD = "print('imported')\ndef handle(messages): return [True]"
LAKE = '[storage]\nmode = "lake"\n'
S3 = 'uri = "s3://bucket/orders"\n'
KEYS = "[default]\naws_access_key_id = a\naws_secret_access_key = b\n"


@pytest.fixture
def path(short_dir: Path) -> Path:
    return short_dir / "kctl.toml"


@pytest.fixture
def check(kctl: Kctl, path: Path) -> Callable[..., Ran]:
    def checked(lines: str = SINKERS, *words: str, handler: str = GOOD) -> Ran:
        path.with_name("shop.py").write_text(handler)
        path.write_text(KAFKA + lines)
        return kctl("config", "check", "--offline", "-c", str(path), *words)

    return checked


@pytest.fixture
def check_table(check: Callable[..., Ran], kctl: Kctl, path: Path) -> Callable[[str], Ran]:
    def checked(lines: str) -> Ran:
        ran, status = check(LAKE + lines), kctl("storage", "status", "-c", str(path))
        if ran.code:
            without_path = [each.err.removeprefix("kctl: ").removeprefix(f"{path}: ") for each in (ran, status)]
            assert (status.code, without_path[1]) == (ran.code, without_path[0])
        return ran

    return checked


def test_a_handler_beside_the_configuration_can_be_used(check: Callable[..., Ran], path: Path) -> None:
    ran = check()

    assert (ran.code, ran.out) == (0, f"{path} can be used\n")
    ran = check("[workers]\ncount = 1\n")
    assert (ran.code, ran.out) == (0, f"{path} can be used\n")
    assert ran.err == "kctl: sinkers.count is 0, so the storage fills up: no process takes messages out of it\n"


@pytest.mark.shows("`kctl config check` reports all that `kctl start` rejects; a hanging import is ended")
@pytest.mark.parametrize(
    ("handler", "sentence", "details"),
    [
        ("import no_such_thing", "cannot be loaded: ModuleNotFoundError: No module named 'no_such_thing'", "shop.py"),
        ("import os; os._exit(7)", "the import of sinkers.handler 'shop:handle' ends the process: exit code 7", ""),
        (
            "import os, signal; print('last words', flush=True); os.kill(os.getpid(), signal.SIGKILL)",
            "the import of sinkers.handler 'shop:handle' ends the process: signal 9, SIGKILL",
            "last words",
        ),
    ],
)
def test_a_broken_handler_is_one_sentence(handler: str, sentence: str, details: str, check: Callable[..., Ran]) -> None:
    ran = check(handler=handler)

    assert (ran.code, ran.out) == (2, "")
    *before, last = ran.err.splitlines()
    assert last.startswith("kctl: ")
    assert sentence in last
    assert details in "\n".join(before)


@pytest.mark.shows("`kctl start` and `kctl config check` make the same checks: broker, topics, handler")
@pytest.mark.parametrize(("handler", "code"), [("import no_such_thing", 2), (GOOD, 10)], ids=["handler", "broker"])
def test_start_makes_equal_checks(handler: str, code: int, check: Callable[..., Ran], kctl: Kctl, path: Path) -> None:
    check(handler=handler)

    ran = [
        kctl(*words.split(), "--set", "kafka.bootstrap_servers=127.0.0.1:1", "-c", str(path))
        for words in ("config check", "start")
    ]

    assert [each.code for each in ran] == [code, code]
    assert ran[0].err.splitlines()[-1] == ran[1].err.splitlines()[-1]


@pytest.mark.parametrize(
    ("section", "named"),
    [
        (SINKERS.replace("shop:handle", "absent.part:Class"), "'absent.part:Class': there is no module absent.part"),
        (SINKERS.replace("shop", "h3.py"), "sinkers.handler 'h3.py:handle': there is no module h3.py"),
        ('[workers]\ntransform = "absent:clean"', "workers.transform 'absent:clean': there is no module absent"),
    ],
)
def test_a_missing_module_has_its_folder(section: str, named: str, check: Callable[..., Ran], path: Path) -> None:
    ran = check(section)

    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert f"{named} in {path.parent} (the folder of the configuration), and none is installed" in ran.err
    assert (".py:" in named) == ran.err.endswith("; leave .py out\n")


def test_a_file_of_contexts_can_be_used_by_kctl_kafka_and_is_no_fleet(kctl: Kctl, path: Path) -> None:
    path.write_text('[contexts.prod]\nbootstrap_servers = "b:1"\n[contexts.dev]\nbootstrap_servers = "c:1"\n')

    checked, started = kctl("config", "check", "--offline", "-c", str(path)), kctl("start", "-c", str(path))

    assert (checked.code, checked.out) == (0, f"{path} can be used by `kctl kafka`: contexts dev, prod\n")
    assert started.code == 2
    assert f"{path} has no [kafka]; its contexts are prod, dev: `kctl kafka COMMAND --context prod`" in started.err


def test_an_import_that_hangs_is_ended_and_its_place_is_shown(check: Callable[..., Ran], tmp_path: Path) -> None:
    handler = f"""
import subprocess, threading
child = subprocess.Popen(["sleep", "600"])
open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
threading.Event().wait()  # for ever
"""
    seconds = f"{on_this_machine(2.0):.0f}"

    ran = check(SINKERS, "--timeout", seconds, handler=handler)

    assert ran.code == 2
    assert f"the import of sinkers.handler 'shop:handle' takes longer than {seconds} s" in ran.err
    assert 'shop.py", line 5' in ran.err
    pid = int((tmp_path / "pid").read_text())
    eventually(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2])


def test_everything_that_start_would_refuse_without_a_broker_is_named(check: Callable[..., Ran], path: Path) -> None:
    path.with_name("password").touch(0o644)
    path.with_name("password").chmod(0o644)
    secured = 'security_protocol = "SASL_SSL"\n'

    ran = check(f'{secured}[fleet]\nrun_dir = "/tmp/{"x" * 100}"\n[http]\nhost = "0.0.0.0"\n')
    secrets = check(f'{secured}sasl_username = "u"\nsasl_password_file = "password"\n[http]\ntoken_file = "absent"\n')

    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 3)
    assert "107" in ran.err  # the most bytes that a socket path may have
    assert "SCRAM-SHA-512 needs sasl_username, and a password in sasl_password_file" in ran.err
    assert "http.host is 0.0.0.0, which is not a loopback address" in ran.err
    assert (secrets.code, secrets.err.count("\n")) == (2, 2)
    assert "kafka.sasl_password_file cannot be read: every user of this machine may open it" in secrets.err
    assert f"http.token_file {path.with_name('absent')} cannot be read" in secrets.err


def test_usable_keys_and_places(check_table: Callable[[str], Ran], path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.with_name("keys").touch(0o600)
    path.with_name("keys").write_text(KEYS)

    for lines in (
        f'{S3}credentials_file = "keys"\nendpoint = "http://127.0.0.1:1"',
        f'uri = "{path.with_name("orders").as_uri()}"',
    ):
        ran = check_table(lines)
        assert (ran.code, ran.out, ran.err) == (0, f"{path} can be used\n", "")

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://u:hunter2@[::1")

    ran = check_table(S3)
    assert (ran.code, "hunter2" in ran.err) == (2, False)
    assert "(storage.endpoint, or AWS_ENDPOINT_URL) is not a URL" in ran.err


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
def test_bad_keys_are_rejected(
    content: str | None, mode: int, complaint: str, check_table: Callable[[str], Ran], path: Path
) -> None:
    if content is not None:
        path.with_name("keys").write_text(content)
        path.with_name("keys").chmod(mode)

    ran = check_table(f'{S3}credentials_file = "keys"')

    assert (ran.code, ran.out, complaint in ran.err, ran.err.count("\n")) == (2, "", True, 1), ran.err


@pytest.mark.parametrize(
    ("lines", "module", "complaint"),
    [
        ('uri = "file:///srv/t"', "deltalake", 'storage.mode = "lake" needs deltalake: pip install deltalake'),
        (S3, "obstore", "storage.uri = s3://… needs obstore: pip install obstore"),
    ],
)
def test_a_package_that_is_missing_is_named_as_pip_installs_it(
    lines: str,
    module: str,
    complaint: str,
    check_table: Callable[[str], Ran],
    kctl: Kctl,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name == module or name.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("kctl_agent.storage.kinds.find_spec", lambda name: None if name == module else object())

    for ran in (check_table(lines), kctl("storage", "dead", "list", "-c", str(path))):
        assert (ran.code, complaint in ran.err, "defect" in ran.err) == (2, True, False)


def test_a_folder_that_cannot_have_the_table_is_rejected(check: Callable[..., Ran], path: Path) -> None:
    folder = path.parent
    (folder / "file").touch()
    named = {
        "none/orders": f"the folder {folder / 'none'} for the table of storage.uri does not "
        f"exist: mkdir -p {folder / 'none'}",
        "file": "file (storage.uri) is not a folder: name another",
        "file/orders": "file, where the table of storage.uri should be created, is not a folder",
        "a[b": "(storage.uri) has a `[`, which delta-rs cannot open",
        "a%b": "(storage.uri) has a `%`, which delta-rs cannot open",
    }

    for name, complaint in named.items():
        ran = check(f'{LAKE}uri = "{(folder / name).as_uri()}"')
        assert (ran.code, complaint in ran.err) == (2, True), ran.err
    assert sorted(each.name for each in folder.iterdir()) == ["file", "kctl.toml", "shop.py"]


NO_FOLDER = "file:////", "file:///.", "file:///..", "file:///tmp/orders/..", "file:///tmp/a%00b", "file:///tmp/a%0Ab"


@pytest.mark.shows("unusable folders, endpoints, keys and packages of a table are rejected before the start")
@pytest.mark.parametrize(
    ("lines", "named"),
    [
        *(
            (
                f'uri = "{uri}"',
                f"storage.uri is {uri}, which names no folder of its own: write its path from the root on",
            )
            for uri in (*NO_FOLDER, "s3://b-1/.", "s3://b-1/a/../b")
        ),
        (f'{S3}endpoint = "http://[::1"', "the endpoint http://[::1 (storage.endpoint, or AWS_ENDPOINT_URL)"),
        (f'{S3}endpoint = "http://127.0.0.1:99999"', "the endpoint http://127.0.0.1:99999"),
        (f'{S3}endpoint = "http://127.0.0.1:abc"', "the endpoint http://127.0.0.1:abc"),
        (f'{S3}endpoint = "http://%zz"', "the endpoint http://%zz"),
        (f'{S3}endpoint = "http://h]:1"', "the endpoint http://h]:1"),
        (f'{S3}region = "\\n"', "'\\n' (storage.region, or AWS_REGION) is not the name of a region"),
        (f'{S3}region = "x y"', "'x y' (storage.region"),
    ],
)
def test_an_unusable_uri_or_endpoint_is_rejected(check_table: Callable[[str], Ran], lines: str, named: str) -> None:
    ran = check_table(lines)

    assert (ran.code, ran.out, named in ran.err, ran.err.count("\n")) == (2, "", True, 1), ran.err
