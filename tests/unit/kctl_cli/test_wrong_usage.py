import argparse
import os
import pty
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from kctl.cli.completion import complete, script
from kctl.cli.entry import tree
from kctl.cli.kafka.changes import change
from kctl.cli.kafka.produce import line
from kctl.cli.output import OUTPUTS
from kctl.errors import UsageError
from kctl_agent.replies.questions import QUESTIONS
from tests.command_lines import KCTL, Kctl

COMMANDS = (
    ("stat", "kctl: there is no command `kctl stat`; the nearest is `start`, `status` or `restart`"),
    ("consume", "kctl: there is no command `kctl consume`; it is `kctl kafka consume`\n"),
    ("offset_checker", "kctl: there is no command `kctl offset_checker`; it is `kctl rpc offset_checker`\n"),
    ("requeue", "no command `kctl requeue`; it is `kctl storage requeue` or `kctl storage dead requeue`\n"),
    ("show", "it is `kctl storage dead show` or `kctl checkpoint show` or `kctl config show`\n"),
    ("--show-completion bash", "kctl: --show-completion does not accept `bash`: it is for the shell that runs"),
    ("status --nonsense", "kctl: kctl status does not accept --nonsense; see `kctl status --help`"),
    ("stop --timeout soon", "kctl: argument --timeout: `soon` is not a number of 0 or more"),
    ("status -o xml", "kctl: argument -o/--output: invalid choice: 'xml'"),
    ("demo -o yaml", "kctl: kctl demo prints a table or json"),
    ("demo --port 9092", "kctl: --port is for --broker-only"),
    ("demo --workers 0", "kctl: argument --workers: `0` is not a whole number, 1 or more"),
    ("start", "kctl: name a configuration: -c kctl.toml, or KCTL_CONFIG"),
    ("start -c /absent.toml", "kctl: there is no configuration file /absent.toml"),
    ("start -c x --set workers.count", "kctl: --set takes SECTION.KEY=VALUE, not `workers.count`"),
    ("jars fetch sparks", "kctl: there is no set of jars `sparks`: choose from broker, spark"),
    ("seek --topic t --to lates", "kctl: `lates` is not a position: use earliest, latest, an offset, or"),
    ("log-level sinker-0 FOO", "kctl: `FOO` is not a level: use DEBUG, INFO, WARNING, ERROR"),
    ("pause --all --topic t", "kctl: only one of --all and --topic"),
    ("-c", "kctl: -c takes a FILE"),
    ("status -c ''", "kctl: -c takes a FILE, not a folder or an empty text"),
    ("kafka lag -g ''", "kctl: --group must not be empty"),
    ("restart worker-0 ''", "kctl: NAME must not be empty"),
    ("dead", "kctl: there is no command `kctl dead`; it is `kctl storage dead`\n"),
    ("version", "kctl: there is no command `kctl version`; it is `kctl --version`\n"),
)
RPC = (
    ("", "give a command: kafka_lag, offset_checker"),
    ("kafka_lags", "there is no rpc command `kafka_lags`; the nearest is `kafka_lag`"),
    ("'x\x1b[2J'", "there is no rpc command `x\\u001b[2J`; there are kafka_lag"),
    ("kafka_lag --timeout soon", "argument --timeout: `soon` is not a number of seconds above 0"),
    ("kafka_lag --timeout nan", "is not a number of seconds above 0"),
    ("kafka_lag --watch -1", "is not a number of seconds above 0"),
    ("kafka_lag --fail-above many", "argument --fail-above: `many` is not a whole number, 0 or more"),
    ("kafka_lag --fail-above 9999999999999999999", "`9999999999999999999` is not a whole number, of 64 bits"),
    ("workers --fail-above 1", "--fail-above is for kafka_lag, offset_checker, block_size, not for workers"),
    ("kafka_lag --work w", "kctl rpc does not accept --work; see `kctl rpc --help`"),
)
KAFKA = (  # `B` is a port at which no broker listens
    ("lagg", "there is no command `kctl kafka lagg`; the nearest is `lag`"),
    ("lag -g x -b nowhere", "-b takes HOST:PORT"),
    ("lag -g x --timeout 0", "not a number above 0"),
    ("lag -g x", "name a cluster: -b HOST:PORT"),
    ("lag -b B", "--all, or a kctl.toml with -c or KCTL_CONFIG; `kctl kafka groups -b 127.0.0.1:1` lists them"),
    ("group -b B", "name a group: GROUP, --all, or a kctl.toml"),
    ("topic", "required: TOPIC"),
    ("list-offsets -b B", "give a topic"),
    ("list-offsets -b B -t x --time soon", "`soon` is not a time"),
    ("list-offsets -b B -t x:a", "`x:a` is not a topic with partitions"),
    ("reset-offsets -b B -g g -t x --to there", "`there` is not a position"),
    ("reset-offsets -b B -g g -t x --to shift-by", "is not a position"),
    ("reset-offsets -b B -g g -t x --to -3", "is not a position"),
    (f"reset-offsets -b B -g g -t x --to {'9' * 5000}", "is not a position"),
    (f"reset-offsets -b B -g g -t x --to @{'9' * 5000}", "is not a time"),
    (f"reset-offsets -b B -g g -t x --to shift-by {'9' * 5000}", "is not a position"),
    (f"reset-offsets -b B -g g -t x:{'9' * 5000} --to latest", "is not a topic with partitions"),
    ("list-offsets -b B -t x --time @9999999999999999999", "is not a time"),
    (f"consume -b B -t x --from -{'9' * 5000}", "is not a position"),
    ("reset-offsets -b B -g g -t x --to 5 -y --dry-run", "contradict each other"),
    ("create-topic -b B x --set retention.ms", "--set takes KEY=VALUE"),
    ("create-topic -b B x --set a=1 --set a=2", "--set a is given twice"),
    ("create-topic -b B 'bad name!'", "`bad name!` is not a valid topic name"),
    ("create-topic -b B ..", "`..` is not a valid topic name"),
    ("alter-topic -b B x", "name what to alter"),
    ("consume -b B -t x --from foo", "@MILLISECONDS, or -N for the last N of each partition"),
    ("produce -b B -t x a --null", "give exactly one of MESSAGE"),
    ("produce -b B -t x a --header b", "--header takes KEY=VALUE"),
    ("produce -b B -t x --file f --repeat 2", "--repeat is for one message"),
    ("produce -b B -t x a --key-separator :", "--key-separator reads keys"),
)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        *COMMANDS,
        *((f"rpc {words}", sentence) for words, sentence in RPC),
        *((f"kafka {words.replace('-b B', '-b 127.0.0.1:1')}", sentence) for words, sentence in KAFKA),
    ],
)
def test_wrong_usage_exits_2_with_one_sentence(kctl: Kctl, words: str, sentence: str) -> None:
    ran = kctl(*shlex.split(words))

    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith("kctl: ")
    assert sentence in ran.err


def completed(*words: str) -> list[str]:
    lines = [
        script({"SHELL": "/bin/bash"}),
        f"COMP_WORDS=(kctl {' '.join(each or repr('') for each in words)}); COMP_CWORD={len(words)}",
        '_kctl; echo "${COMPREPLY[*]}"',
    ]
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", "\n".join(lines)], env=env, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.shows("the shell completes commands, their options and the rpc commands")
def test_the_shell_completes_commands_their_options_and_the_rpc_commands() -> None:
    assert completed("st") == ["start", "stop", "status", "stack", "storage"]
    assert completed("rpc", "") == list(QUESTIONS)
    assert completed("rpc", "kafka_lag", "--f") == ["--fail-above"]
    assert completed("rpc", "kafka_lag", "-o", "") == ["table", "wide", "json", "yaml"]
    assert completed("status", "-o", "") == list(OUTPUTS)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("storage dead l", ["list"]),
        ("-c kctl.toml storage dead sh", ["show"]),
        ("pause --topic st", []),
        ("pause --dead", ["--deadline"]),
        ("kafka lag --all --read", ["--read-committed"]),
        ("--deb", ["--debug"]),
    ],
)
def test_what_is_offered_belongs_to_the_command_before_it(words: str, offered: list[str]) -> None:
    assert complete(tree(), words.split(), "bash") == offered


def test_zsh_and_fish_show_meanings_and_an_unknown_shell_is_named(kctl: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    assert complete(tree(), ["res"], "zsh")[0] == "resume:End pauses and read again."
    assert complete(tree(), ["res"], "fish")[0] == "resume\tEnd pauses and read again."
    with pytest.raises(UsageError, match=r"^SHELL is `tcsh`: there is completion for bash, zsh, fish$"):
        script({"SHELL": "/bin/tcsh"})
    monkeypatch.setenv("SHELL", "/bin/zsh")

    assert kctl("--show-completion").out == script({"SHELL": "/bin/zsh"}) + "\n"


EXPENSIVE = {
    *("asyncio", "fastapi", "hypothesis", "kafka", "kctl.config", "kctl.reduce", "logging", "prometheus_client"),
    *("psutil", "pydantic", "pyspark", "rich", "subprocess", "uvicorn", "yaml"),
}
COMPUTING = {"numpy", "pyarrow", "redis", "zlib_ng", "kctl.status"}


@pytest.mark.parametrize(
    ("commands", "needed", "needless"),
    [
        ("rpc kafka_lag, rpc offset_checker -o json, status", "kctl.rpc.client", EXPENSIVE),
        ("jars paths broker", "kctl.cli.jars", {"kctl.config", "kctl.master", "kctl.demo", "kctl.rpc"}),
        ("kafka", "kctl.cli.kafka.commands", {"kafka", "kctl.config", "logging", "rich", "pydantic"}),
        ("--help, groups --help, top --help, exporter --help", "kctl.cli.help", COMPUTING),
    ],
)
def test_a_command_imports_only_what_it_needs(commands: str, needed: str, needless: set[str]) -> None:
    code = (
        "import sys; from kctl.cli.entry import run; [run(words.split()) for words in sys.argv[1].split(',')];"
        "print('modules:', *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, commands], capture_output=True, text=True, check=False)

    imported = set(done.stderr.rpartition("modules:")[2].split())

    assert needed in imported
    assert not needless & imported


def test_a_process_that_ends_at_once_has_printed_everything_or_reports_what_it_could_not_print() -> None:
    words = [*KCTL, "kafka", "--help"]
    with Path("/dev/full").open("w") as full:
        failed = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    assert subprocess.check_output(words, text=True).endswith("group has live members.\n")
    assert (failed.returncode != 0, "No space left on device" in failed.stderr) == (True, True)


ASK = "from kctl.cli import entry, output; entry._dispatched = lambda *_: output.confirm('Do it?') or 0; "
QUESTION = b"Do it? [y/N] "


def asked(keys: bytes) -> tuple[int, str]:
    ours, terminal = pty.openpty()
    words = [sys.executable, "-c", f"{ASK}raise SystemExit(entry.run(['top']))"]
    try:
        with subprocess.Popen(words, stdin=terminal, stderr=subprocess.PIPE) as command:
            assert command.stderr is not None
            printed = command.stderr.read(len(QUESTION))
            if keys == b"\x03":
                command.send_signal(
                    signal.SIGINT
                )  # the terminal controls no session of its own, so it would send no signal
            else:
                os.write(ours, keys)
            printed += command.stderr.read()
        return command.returncode, printed.decode()
    finally:
        os.close(ours)
        os.close(terminal)


@pytest.mark.parametrize(
    ("keys", "ended"),
    [
        pytest.param(b"\x03", (130, "\n"), id="ctrl-c"),
        pytest.param(b"\x04", (1, "\nkctl: nothing was changed\n"), id="ctrl-d"),
        pytest.param(b"yes\n", (0, ""), id="yes"),
        pytest.param(b"\n", (1, "kctl: nothing was changed\n"), id="nothing"),
    ],
)
def test_ctrl_c_at_a_question_exits_130_and_ends_its_line(keys: bytes, ended: tuple[int, str]) -> None:
    code, printed = asked(keys)

    assert (code, printed.removeprefix(QUESTION.decode())) == ended


@pytest.mark.parametrize(("dry_run", "code"), [(True, 0), (False, 2)])
def test_a_change_that_cannot_be_confirmed_fails_unless_it_is_a_dry_run(dry_run: bool, code: int) -> None:
    options = argparse.Namespace(execute=False, dry_run=dry_run, output="json")
    shown: list[bool] = []

    def show(*, executed: bool) -> None:
        shown.append(executed)

    nothing = cast("Any", None)
    assert (change(options, {}, nothing, "delete-topic", "Do it?", show, nothing), shown) == (code, [False])


def test_a_context_file_and_its_mistakes_are_named(kctl: Kctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "clusters.toml"
    file.write_text('[contexts.prod]\nbootstrap_servers = "b:1"\nsecurity_protocol = "SASL_SSL"\n')

    unknown = kctl("kafka", "groups", "-c", str(file), "--context", "test")
    unfinished = kctl("kafka", "groups", "-c", str(file), "--context", "prod")
    monkeypatch.setenv("KCTL_CONTEXT", "test")
    by_variable = kctl("-c", str(file), "kafka", "groups")
    file.write_text('[contexts.prod]\nbootstrap_servers = "b:1"\ntls_cafile = "x"\n')
    misspelt = kctl("kafka", "groups", "-c", str(file), "--context", "prod")

    assert [ran.code for ran in (unknown, unfinished, by_variable, misspelt)] == [2, 2, 2, 2]
    assert "has no context `test`; there are prod" in unknown.err
    assert by_variable.err == unknown.err
    assert "SCRAM-SHA-512 needs sasl_username, and a password in sasl_password_file" in unfinished.err
    assert "the nearest is `tls_ca_file`" in misspelt.err


def test_an_unreachable_broker_is_reported_with_its_exit_code(kctl: Kctl) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        ran = kctl("kafka", "groups", "-b", f"127.0.0.1:{mute.getsockname()[1]}", "--timeout", "0.3")
    assert (ran.code, "something accepts connections there and does not answer" in ran.err) == (10, True)
    ran = kctl("kafka", "groups", "-b", "127.0.0.1:1")

    assert (ran.code, ran.out) == (10, "")
    assert ran.err.endswith(
        "kctl: no Kafka broker answers at 127.0.0.1:1 (connection refused): start it, or correct -b\n"
    )


def test_progress_is_printed_with_its_speed_and_what_is_left() -> None:
    half = line(1_000_000, 49_000_000, 100_000_000, 10.0)

    assert half == f"[{'#' * 15:<30}]  50%  1,000,000 messages  4.9 MB/s  100,000 a second  10 s left"
    assert line(10, 100, None, 0.5) == "10 messages  0.0 MB/s  20 a second"
    assert line(0, 0, 100, 0.0).endswith("0%  0 messages  0.0 MB/s  0 a second")
