from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_lines import Kctl
from tests.conftest import eventually

Config = Callable[..., str]


@pytest.fixture
def config(short_dir: Path) -> Config:
    def written(code: str, setting: str = 'sinkers]\ncount = 1\nhandler = "shop:handle"') -> str:
        (short_dir / "shop.py").write_text(code)
        path = short_dir / "kctl.toml"
        path.write_text(f'[kafka]\nbootstrap_servers = "b:1"\ngroup = "g"\ntopics = ["t"]\n[{setting}\n')
        return str(path)

    return written


TWO = (("config", "check"), ("start",))


def test_a_handler_beside_the_configuration_can_be_used(kctl: Kctl, config: Config) -> None:
    handler = config("print('imported')\ndef handle(messages): return [True]")

    ran = kctl("config", "check", "--offline", "-c", handler)

    assert (ran.code, ran.out) == (0, f"{handler} can be used\n")


@pytest.mark.shows("`kctl config check` reports all that `kctl start` rejects; a hanging import is ended")
@pytest.mark.parametrize(
    ("code", "sentence", "details"),
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
def test_a_broken_handler_is_one_sentence(code: str, sentence: str, details: str, kctl: Kctl, config: Config) -> None:
    ran = kctl("config", "check", "--offline", "-c", config(code))

    assert (ran.code, ran.out) == (2, "")
    *before, last = ran.err.splitlines()
    assert last.startswith("kctl: ")
    assert sentence in last
    assert details in "\n".join(before)


@pytest.mark.shows("`kctl start` and `kctl config check` make the same checks: broker, topics, handler")
def test_start_rejects_a_handler_as_the_check_does(kctl: Kctl, config: Config) -> None:
    path = config("import no_such_thing")

    checked, started = kctl("config", "check", "-c", path), kctl("start", "-c", path)

    assert checked.code == started.code == 2
    assert checked.err.splitlines()[-1] == started.err.splitlines()[-1]


def test_a_broker_that_does_not_answer_is_rejected_by_the_check_as_by_start(kctl: Kctl, config: Config) -> None:
    path = config("def handle(messages): return [True]")

    checked, started = (kctl(*words, "--set", "kafka.bootstrap_servers=127.0.0.1:1", "-c", path) for words in TWO)

    assert checked.code == started.code == 10
    assert checked.err.splitlines()[-1] == started.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        (
            'sinkers]\ncount = 1\nhandler = "handler:handle"',
            "sinkers.handler 'handler:handle': there is no module handler",
        ),
        ('sinkers]\ncount = 1\nhandler = "absent.part:Class"', "'absent.part:Class': there is no module absent.part"),
        ('sinkers]\ncount = 1\nhandler = "h3.py:handle"', "'h3.py:handle': there is no module h3.py"),
        ('workers]\ntransform = "absent:clean"', "workers.transform 'absent:clean': there is no module absent"),
    ],
)
def test_a_missing_module_has_its_folder(setting: str, named: str, kctl: Kctl, config: Config, short_dir: Path) -> None:
    ran = kctl("config", "check", "--offline", "-c", config("", setting))

    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert f"{named} in {short_dir} (the folder of the configuration), and none is installed" in ran.err
    assert (".py:" in named) == ran.err.endswith("; leave .py out\n")


def test_a_fleet_without_sinkers_is_valid_and_its_storage_fills(kctl: Kctl, config: Config) -> None:
    path = config("", "workers]\ncount = 1")

    ran = kctl("config", "check", "--offline", "-c", path)

    assert (ran.code, ran.out) == (0, f"{path} can be used\n")
    assert ran.err == "kctl: sinkers.count is 0, so the storage fills up: no process takes messages out of it\n"


def test_a_file_of_contexts_can_be_used_by_kctl_kafka_and_is_no_fleet(kctl: Kctl, short_dir: Path) -> None:
    path = short_dir / "clusters.toml"
    path.write_text('[contexts.prod]\nbootstrap_servers = "b:1"\n[contexts.dev]\nbootstrap_servers = "c:1"\n')

    checked, started = kctl("config", "check", "--offline", "-c", str(path)), kctl("start", "-c", str(path))

    assert (checked.code, checked.out) == (0, f"{path} can be used by `kctl kafka`: contexts dev, prod\n")
    assert started.code == 2
    assert f"{path} has no [kafka]; its contexts are prod, dev: `kctl kafka COMMAND --context prod`" in started.err


def test_an_import_that_hangs_is_ended_and_its_place_is_shown(kctl: Kctl, config: Config, short_dir: Path) -> None:
    code = f"""
import subprocess, threading
child = subprocess.Popen(["sleep", "600"])
open({str(short_dir / "pid")!r}, "w").write(str(child.pid))
threading.Event().wait()  # for ever
"""
    ran = kctl("config", "check", "--offline", "-c", config(code), "--timeout", "2")

    assert ran.code == 2
    assert "the import of sinkers.handler 'shop:handle' takes longer than 2 s" in ran.err
    assert 'shop.py", line 5' in ran.err
    pid = int((short_dir / "pid").read_text())
    eventually(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2])


def test_everything_that_start_would_refuse_without_a_broker_is_named(kctl: Kctl, short_dir: Path) -> None:
    path = short_dir / "kctl.toml"
    path.write_text(
        '[fleet]\nrun_dir = "/tmp/' + "x" * 100 + '"\n'
        '[kafka]\nbootstrap_servers = "b:1"\ngroup = "g"\ntopics = ["t"]\nsecurity_protocol = "SASL_SSL"\n'
        '[http]\nhost = "0.0.0.0"\n'
    )

    ran = kctl("config", "check", "--offline", "-c", str(path))

    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 3)
    assert "107" in ran.err  # the most bytes that a socket path may have
    assert "SCRAM-SHA-512 needs sasl_username, and a password in sasl_password_file" in ran.err
    assert "http.host is 0.0.0.0, which is not a loopback address" in ran.err


def test_a_secret_that_others_can_read_or_that_is_missing_is_named(kctl: Kctl, short_dir: Path) -> None:
    password, path = short_dir / "password", short_dir / "kctl.toml"
    password.write_text("secret")
    password.chmod(0o644)
    path.write_text(
        '[kafka]\nbootstrap_servers = "b:1"\ngroup = "g"\ntopics = ["t"]\nsecurity_protocol = "SASL_SSL"\n'
        'sasl_username = "u"\nsasl_password_file = "password"\n[http]\ntoken_file = "absent"\n'
    )

    ran = kctl("config", "check", "--offline", "-c", str(path))

    assert (ran.code, ran.err.count("\n")) == (2, 2)
    assert "kafka.sasl_password_file cannot be read: every user of this machine may open it" in ran.err
    assert f"http.token_file {short_dir / 'absent'} cannot be read" in ran.err
