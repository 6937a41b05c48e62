import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kctl import fleets
from kctl.audit import append, operation, user_log
from kctl.errors import ConfigError, NoSocketFile, UsageError
from kctl_agent.errors import PathError
from kctl_agent.paths import process_identity

SMALLEST = '[kafka]\nbootstrap_servers = "b:1"\ngroup = "g"\ntopics = ["t"]\n[fleet]\nname = "from-file"\n'


@pytest.fixture
def env(short_dir: Path) -> dict[str, str]:
    return {"XDG_RUNTIME_DIR": str(short_dir)}


def running(env: dict[str, str], name: str, config: Path, pid: int | None = None) -> Path:
    entry = fleets.register(name, config.parent / "run", config, env)
    if pid is None:
        return entry
    own = json.loads(entry.read_text())
    entry.unlink()
    other = entry.with_name(f"{pid}.json")
    other.write_text(json.dumps({**own, "pid": pid, "start_ticks": process_identity(pid).start_ticks}))
    return other


def test_a_registered_fleet_is_found_without_naming_it(env: dict[str, str], tmp_path: Path) -> None:
    entry = running(env, "orders", tmp_path / "kctl.toml")

    found = fleets.find(None, env)

    assert found == fleets.Fleet("orders", tmp_path / "run", tmp_path / "kctl.toml", process_identity())
    fleets.unregister(entry)
    with pytest.raises(NoSocketFile, match="you have no running fleet"):
        fleets.find(None, env)


def test_the_list_of_fleets_is_for_its_user_alone(env: dict[str, str], tmp_path: Path) -> None:
    entry = running(env, "orders", tmp_path / "kctl.toml")

    assert entry.parent.stat().st_mode & 0o777 == 0o700
    entry.parent.chmod(0o755)
    with pytest.raises(PathError, match="chmod 700"):
        fleets.find(None, env)


@pytest.mark.shows("a running fleet is found without its name; several are listed")
def test_several_running_fleets_are_listed_with_names_and_paths(env: dict[str, str], tmp_path: Path) -> None:
    running(env, "orders", tmp_path / "a.toml", pid=os.getppid())
    running(env, "payments", tmp_path / "b.toml")

    with pytest.raises(UsageError) as caught:
        fleets.find(None, env)

    assert str(caught.value) == (
        "you have 2 running fleets; name one:"
        f"\n  orders  -c {tmp_path / 'a.toml'}\n  payments  -c {tmp_path / 'b.toml'}"
    )
    assert fleets.find(tmp_path / "a.toml", env).name == "orders"


def test_the_file_of_a_running_fleet_need_not_be_readable(env: dict[str, str], tmp_path: Path) -> None:
    config = tmp_path / "kctl.toml"
    config.write_text("broken since the start [")
    running(env, "orders", config)

    assert fleets.find(config, env).run_dir == tmp_path / "run"


def test_a_fleet_that_does_not_run_is_found_by_its_configuration(env: dict[str, str], tmp_path: Path) -> None:
    config = tmp_path / "kctl.toml"
    config.write_text(SMALLEST)

    assert fleets.find(config, env) == fleets.Fleet("from-file", tmp_path / "run", config)
    assert fleets.find(None, {**env, "KCTL_CONFIG": str(config)}).name == "from-file"
    with pytest.raises(ConfigError, match="there is no configuration file"):
        fleets.find(tmp_path / "absent.toml", env)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
def test_a_planted_configuration_in_the_folder_is_not_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kctl.toml").touch()
    assert fleets.named(None, {}) == Path("kctl.toml")
    assert fleets.named(None, {"KCTL_CONFIG": "other.toml"}) == Path("other.toml")

    os.chown(tmp_path / "kctl.toml", 65534, 65534)

    assert fleets.named(None, {}) is None


def test_the_entry_of_a_dead_master_does_not_count_and_is_removed(env: dict[str, str], tmp_path: Path) -> None:
    entry = running(env, "orders", tmp_path / "kctl.toml")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        dead = running(env, "dead", tmp_path / "dead.toml", pid=process.pid)
        process.communicate()
    garbage = entry.with_name("1.json")
    garbage.write_text("{")
    recycled = entry.with_name("2.json")
    recycled.write_text(json.dumps({**json.loads(dead.read_text()), "pid": os.getpid(), "start_ticks": 1}))
    running(env, "orders", tmp_path / "kctl.toml")

    assert [fleet.name for fleet in fleets.running(env)] == ["orders"]
    assert sorted(entry.parent.iterdir()) == [entry]


def test_without_a_runtime_folder_the_list_is_kept_under_tmp() -> None:
    assert fleets.registry_dir({}) == Path(f"/tmp/kctl-{os.geteuid()}")
    assert fleets.registry_dir({"XDG_RUNTIME_DIR": "/does/not/exist"}) == Path(f"/tmp/kctl-{os.geteuid()}")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("error", [ValueError("the broker refused"), KeyboardInterrupt()])
def test_a_change_that_fails_reports_the_reason(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "audit.jsonl"

    with pytest.raises(type(error)), operation(path, "kafka delete-topic", {}):
        raise error

    _, last = lines(path)
    assert (last["state"], last["text"]) == ("failed", str(error) or "KeyboardInterrupt")
    assert (last["uid"], last["via"]) == (os.getuid(), "cli")


def test_a_failing_log_is_logged_and_the_work_done(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "logs").write_text("a file where the folder should be")
    changed = False

    with operation(tmp_path / "logs" / "operations.jsonl", "storage clear", {}):
        changed = True

    assert changed
    assert "action=audit_failed" in caplog.text


def test_only_its_owner_may_read_the_file_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "kctl" / "audit.jsonl"
    before = os.umask(0)
    try:
        append(path, {"topic": "käse\x1b[31m"})
    finally:
        os.umask(before)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.read_bytes().isascii()
    assert b"\x1b" not in path.read_bytes()


def test_a_link_is_not_followed_and_a_pipe_without_a_reader_does_not_block(tmp_path: Path) -> None:
    path = tmp_path / "operations.jsonl"
    path.symlink_to(tmp_path / "target")

    with pytest.raises(OSError, match="it is a symbolic link"):
        append(path, {"operation": "storage clear"})
    assert not (tmp_path / "target").exists()

    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError):
        append(path, {"operation": "storage clear"})


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a folder of another user")
def test_root_writes_nothing_below_the_home_of_another_user(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)

    with pytest.raises(ConfigError, match="sudo -u nobody kctl …"):
        user_log({"HOME": str(tmp_path)})  # `sudo -E` keeps HOME


def test_without_a_fleet_it_is_the_users_own_file(tmp_path: Path) -> None:
    assert user_log({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "kctl" / "audit.jsonl"
    assert user_log({"HOME": str(tmp_path / "me")}) == tmp_path / "me" / ".local/state/kctl/audit.jsonl"


def test_half_a_line_that_a_full_disk_has_taken_is_an_error_and_swallows_no_other(tmp_path: Path) -> None:
    path = tmp_path / "operations.jsonl"
    script = """
import pathlib, resource, signal, sys
from kctl.audit import append
path = pathlib.Path(sys.argv[1])
append(path, {"id": 1})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 3, resource.RLIM_INFINITY))
append(path, {"id": 2})
"""
    ran = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)

    append(path, {"id": 3})

    assert ran.stderr.endswith("No space left on device\n")
    assert path.read_text() == '{"id": 1}\n{"i\n{"id": 3}\n'
