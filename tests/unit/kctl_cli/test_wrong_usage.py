from __future__ import annotations

import shlex

import pytest

from tests.command_lines import Kctl

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
    ("demo --storage mongo", "kctl: argument --storage: invalid choice: 'mongo'"),
    ("demo --port 9092", "kctl: --port is for --broker-only"),
    ("demo --workers 0", "kctl: argument --workers: `0` is not a whole number, 1 or more"),
    ("start", "kctl: name a configuration: -c kctl.toml, or KCTL_CONFIG"),
    ("start -c /absent.toml", "kctl: there is no configuration file /absent.toml"),
    ("start -c x --set workers.count", "kctl: --set takes SECTION.KEY=VALUE, not `workers.count`"),
    ("config check", "kctl: name a configuration: -c kctl.toml, or KCTL_CONFIG"),
    ("jars fetch sparks", "kctl: there is no set of jars `sparks`: choose from broker, spark"),
    ("seek --topic t --to lates", "kctl: `lates` is no place in a log: use earliest, latest, an offset, or"),
    ("log-level sinker-0 FOO", "kctl: `FOO` is not a level: use DEBUG, INFO, WARNING, ERROR"),
    ("pause --all --topic t", "kctl: only one of --all and --topic"),
    ("-c", "kctl: -c takes a FILE"),
    ("status -c ''", "kctl: -c takes a FILE, not an empty text"),
    ("operation ''", "kctl: ID must not be empty; see `kctl operation --help`"),
    ("kafka lag -g ''", "kctl: --group must not be empty"),
    ("restart worker-0 ''", "kctl: NAME must not be empty"),
    ("dead", "kctl: there is no command `kctl dead`; it is `kctl storage dead`\n"),
    ("version", "kctl: there is no command `kctl version`; it is `kctl --version`\n"),
)
QUESTIONS = (
    ("", "give a command: kafka_lag, offset_checker"),
    ("kafka_lags", "there is no rpc command `kafka_lags`; the nearest is `kafka_lag`"),
    ("'x\x1b[2J'", "there is no rpc command `x\\u001b[2J`; there are kafka_lag"),
    ("kafka_lag --timeout soon", "argument --timeout: `soon` is not a number of seconds above 0"),
    ("kafka_lag --timeout 0", "is not a number of seconds above 0"),
    ("kafka_lag --timeout nan", "is not a number of seconds above 0"),
    ("kafka_lag --watch -1", "is not a number of seconds above 0"),
    ("kafka_lag -o xml", "argument -o/--output: invalid choice: 'xml'"),
    ("kafka_lag --fail-above many", "argument --fail-above: `many` is not a whole number, 0 or more"),
    ("kafka_lag --fail-above 9999999999999999999", "`9999999999999999999` is not a whole number, of 64 bits"),
    ("workers --fail-above 1", "--fail-above is for kafka_lag, offset_checker, block_size, not for workers"),
    ("kafka_lag --nonsense", "kctl rpc does not accept --nonsense; see `kctl rpc --help`"),
    ("kafka_lag --work w", "kctl rpc does not accept --work; see `kctl rpc --help`"),
)
KAFKA = (  # `B` is a port at which no broker listens
    ("lagg", "there is no command `kctl kafka lagg`; the nearest is `lag`"),
    ("lag -g x -b nowhere", "-b takes HOST:PORT"),
    ("lag -g x --timeout 0", "not a number above 0"),
    ("lag -g x", "name a cluster: -b HOST:PORT"),
    ("lag -b B", "--all, or a kctl.toml with -c or KCTL_CONFIG; `kctl kafka groups -b 127.0.0.1:1` lists them"),
    ("lag -b B -t orders", "name a group: -g GROUP, --all,"),
    ("lag", "name a cluster: -b HOST:PORT"),
    ("group -b B", "name a group: GROUP, --all, or a kctl.toml"),
    ("topic", "required: TOPIC"),
    ("list-offsets -b B", "give a topic"),
    ("list-offsets -b B -t x --time soon", "`soon` is no time"),
    ("list-offsets -b B -t x:a", "`x:a` is no topic with partitions"),
    ("reset-offsets -b B -g g -t x --to there", "`there` is no place in a log"),
    ("reset-offsets -b B -g g -t x --to shift-by", "is no place in a log"),
    ("reset-offsets -b B -g g -t x --to -3", "is no place in a log"),
    ("reset-offsets -b B -g g -t x --to 5 -y --dry-run", "give one of them"),
    ("delete-topic -b B x -y --dry-run", "give one of them"),
    ("create-topic -b B x -p 0", "argument -p/--partitions: `0` is not a whole number, 1 or more"),
    ("create-topic -b B x --set retention.ms", "--set takes KEY=VALUE"),
    ("create-topic -b B x --set a=1 --set a=2", "--set a is given twice"),
    ("create-topic -b B 'bad name!'", "`bad name!` is not a valid topic name"),
    ("create-topic -b B ..", "`..` is not a valid topic name"),
    ("alter-topic -b B x", "give what to alter"),
    ("consume -b B -t x --from=-x", "is no place in a log"),
    ("consume -b B -t x --from foo", "@MILLISECONDS, or -N for the last N of each partition"),
    ("produce -b B -t x", "give exactly one of MESSAGE"),
    ("produce -b B -t x a --null", "give exactly one of MESSAGE"),
    ("produce -b B -t x a --codec brotli", "invalid choice: 'brotli'"),
    ("produce -b B -t x a --header b", "--header takes KEY=VALUE"),
    ("produce -b B -t x --file f --repeat 2", "--repeat is for one message"),
    ("produce -b B -t x a --key-separator :", "--key-separator reads keys"),
    ("consume -b B -t x --format xml", "invalid choice: 'xml'"),
)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        *COMMANDS,
        *((f"rpc {words}", sentence) for words, sentence in QUESTIONS),
        *((f"kafka {words.replace('-b B', '-b 127.0.0.1:1')}", sentence) for words, sentence in KAFKA),
    ],
)
def test_wrong_usage_exits_2_with_one_sentence(kctl: Kctl, words: str, sentence: str) -> None:
    ran = kctl(*shlex.split(words))

    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith("kctl: ")
    assert sentence in ran.err
