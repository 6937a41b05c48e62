"""`kctl kafka`: its commands. The function that runs a command is named after it, with `_` for `-`."""

import argparse
from collections.abc import Mapping
from functools import partial
from importlib import import_module

from kctl.cli.command import CONFIG, OUTPUT, Command, CommandGroup, Option
from kctl.kafka.client import light_imports

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_TOPIC = Option(("-t", "--topic"), "the topic", metavar="TOPIC", is_required=True)
_TOPICS = Option(("-t", "--topic"), "only this topic; may be repeated", "texts", "TOPIC")
_SOME_TOPICS = Option(
    ("-t", "--topic"), "this topic, or only some partitions of it: TOPIC:0,2; may be repeated", "texts", "TOPIC"
)
_GROUP = Option(("-g", "--group"), "the group", metavar="GROUP", is_required=True)
_GROUPS = Option(("-g", "--group"), "this group; may be repeated", "texts", "GROUP")
_DRY_RUN = Option(("--dry-run",), "only show what would be done", "flag")
_CHANGE = (Option(("-y", "--execute", "--yes"), "do it without asking; required without a terminal", "flag"), _DRY_RUN)
_THE_TOPIC = Option(("TOPIC",), "the topic", is_required=True)
_SET = Option(("--set",), "a setting of the topic, such as retention.ms=3600000; may be repeated", "texts", "KEY=VALUE")
_READ_COMMITTED = Option(("--read-committed",), "only up to the last stable offset, without open transactions", "flag")
_CONFIG = CONFIG._replace(help="the fleet's kctl.toml; see `kctl --help`")
_TIMEOUT = Option(("--timeout",), "in total", "number", "SECONDS", 10.0)
_UNTIL_END = "how long to wait for the brokers or, without --follow, for the next message"


def common_options(*, timeout: Option = _TIMEOUT, output: bool = True) -> tuple[Option, ...]:
    return (
        Option(
            ("-b", "--bootstrap"),
            "the brokers to ask first, HOST:PORT,…; with a context, they replace only its servers",
            metavar="SERVERS",
        ),
        Option(("--context",), "[contexts.NAME] of kctl.toml: servers, TLS, SASL; or KCTL_CONTEXT", metavar="NAME"),
        _CONFIG,
        *((OUTPUT,) if output else ()),
        timeout,
    )


COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        Command(
            "groups",
            "List the groups of all brokers: type and state.",
            common_options(),
            "kctl kafka groups\nkctl kafka groups -b 127.0.0.1:9092 -o json",
        ),
        Command(
            "group",
            "Show groups: state, coordinator, members and their partitions.",
            (
                Option(("GROUP",), "their names; by default the group of kctl.toml", "words"),
                Option(("-t", "--topic"), "only members that own partitions of this topic", metavar="TOPIC"),
                Option(("--all",), "every group", "flag"),
                *common_options(),
            ),
            "kctl kafka group billing\nkctl kafka group --all -t orders    which groups read the topic",
            "Shows groups of any type, with their assignor.",
        ),
        Command(
            "delete-group",
            "Delete a group without live members.",
            (Option(("GROUP",), "the group", is_required=True), *_CHANGE, *common_options()),
            "kctl kafka delete-group billing    shows it, and asks on a terminal\n"
            "kctl kafka delete-group billing --execute",
            "Shows its committed offsets, and asks.",
        ),
        Command("topics", "List the topics and their problems.", common_options(), "kctl kafka topics"),
        Command(
            "topic",
            "Show a topic: its partitions and its configuration.",
            (_THE_TOPIC, *common_options()),
            "kctl kafka topic orders",
            "Shows leader, replicas and ISR of each partition, and every setting that is not the default.",
        ),
        Command(
            "create-topic",
            "Create a topic.",
            (
                _THE_TOPIC,
                Option(("-p", "--partitions"), "the number of partitions", "int", "N", least=1),
                Option(("-r", "--replicas"), "the replication factor", "int", "N", least=1),
                _SET,
                Option(("--dry-run",), "only ask the brokers whether they would create it", "flag"),
                *common_options(),
            ),
            "kctl kafka create-topic orders -p 12 -r 3\n"
            "kctl kafka create-topic orders --set retention.ms=604800000 --set cleanup.policy=delete",
            "The brokers' defaults apply if you do not give partitions or replicas. The command returns when all "
            "partitions have a leader.",
        ),
        Command(
            "delete-topic",
            "Delete a topic and all its messages.",
            (_THE_TOPIC, *_CHANGE, *common_options()),
            "kctl kafka delete-topic orders    shows it, and asks on a terminal\n"
            "kctl kafka delete-topic orders --execute",
            "Shows how many messages it has, and asks.",
        ),
        Command(
            "alter-topic",
            "Give a topic more partitions or other settings.",
            (
                _THE_TOPIC,
                Option(("-p", "--partitions"), "the total number of partitions, which can only grow", "int", "N"),
                _SET,
                Option(("--unset",), "a setting to reset to its default; may be repeated", "texts", "KEY"),
                *_CHANGE,
                *common_options(),
            ),
            "kctl kafka alter-topic orders --set retention.ms=3600000    shows it, and asks on a terminal\n"
            "kctl kafka alter-topic orders -p 24 --unset retention.ms --execute",
            "Shows old and new values, and asks. With more partitions, most keys move to another partition, so "
            "messages of a key are not in order across the change.",
        ),
        Command(
            "brokers",
            "List the brokers, and how many partitions each leads and stores.",
            common_options(),
            "kctl kafka brokers",
        ),
        Command(
            "lag",
            "Show how far a group is behind, per partition.",
            (_GROUPS, _TOPICS, Option(("--all",), "every group", "flag"), _READ_COMMITTED, *common_options()),
            "kctl kafka lag -g billing\n"
            "kctl kafka lag -g billing -t orders    all partitions of the topic\n"
            "kctl kafka lag --all -o json",
            "Also shows groups without members. The columns are those of Kafka's own tool; `-` means unknown. "
            "Without -g, it shows the group of kctl.toml.",
        ),
        Command(
            "list-offsets",
            "Show where partitions start or end, or the offset at a time.",
            (
                _SOME_TOPICS,
                Option(
                    ("--time",),
                    "where: earliest, latest, max-timestamp, or a time: 2026-11-21T10:00:00Z, @MILLISECONDS; UTC "
                    "unless it has a zone",
                    metavar="TIME",
                    default="latest",
                ),
                _READ_COMMITTED,
                *common_options(),
            ),
            "kctl kafka list-offsets -t orders\n"
            "kctl kafka list-offsets -t orders:0,1 --time 2026-11-21T10:00:00Z    the first message since then",
        ),
        Command(
            "offset-fetch",
            "Show what a group has committed.",
            (_GROUP, _TOPICS, *common_options()),
            "kctl kafka offset-fetch -g billing",
            "With -t, it shows all partitions of the topic, including those without a committed offset.",
        ),
        Command(
            "reset-offsets",
            "Set the committed offsets of a group without live members.",
            (
                _GROUP,
                _SOME_TOPICS,
                Option(
                    ("--to",),
                    "where: earliest, latest, an OFFSET, a time (2026-11-21T10:00:00Z or @MILLISECONDS; UTC unless "
                    "it has a zone), or shift-by N",
                    "words",
                    "TARGET",
                    is_required=True,
                ),
                *_CHANGE,
                *common_options(),
            ),
            "kctl kafka reset-offsets -g billing -t orders --to earliest    shows it, and asks on a terminal\n"
            "kctl kafka reset-offsets -g billing -t orders:0 --to shift-by -100 --execute",
            "Shows old and new offsets and the difference, and asks. Nothing changes unless you say yes or pass "
            "--execute. An offset outside the log becomes the nearest one in the log. A time after the last message "
            "becomes the end.",
        ),
        Command(
            "produce",
            "Produce one message, or each line of a file.",
            (
                _TOPIC,
                Option(("MESSAGE",), "the message; `-`: each line of stdin"),
                Option(("-f", "--file"), "send each line of this file", metavar="FILE"),
                Option(("--null",), "a message without a value: a tombstone", "flag"),
                Option(("-p", "--partition"), "the partition to produce to", "int", "N"),
                Option(("-k", "--key"), "the key, which selects the partition as in the Java client", metavar="KEY"),
                Option(("--key-separator",), "each line is KEY, this text, MESSAGE", metavar="TEXT"),
                Option(("--codec",), "how to compress messages", choices=_CODECS, default=_CODECS[0]),
                Option(
                    ("--acks",),
                    "how many replicas must acknowledge: 0, 1 or all",
                    choices=("0", "1", "all"),
                    default="all",
                ),
                Option(("--header",), "a header; may be repeated", "texts", "KEY=VALUE"),
                Option(("--repeat",), "how many times to send it", "int", "N", 1, least=1),
                Option(("--rate",), "at most this many messages per second", "number", "N"),
                *common_options(
                    timeout=Option(("--timeout",), "for each message's acknowledgement", "number", "SECONDS", 60.0)
                ),
            ),
            'kctl kafka produce -t orders -k 17 "hello"\n'
            "kctl kafka produce -t orders --file orders.jsonl --codec zstd\n"
            "seq 1000 | kctl kafka produce -t orders -",
            "Retries through a change of leader, without duplicates. Without partition and key, each batch goes to one "
            "partition. A terminal shows the progress.",
        ),
        Command(
            "consume",
            "Print the messages of a topic, without committing offsets.",
            (
                _TOPIC,
                Option(("-p", "--partition"), "only this partition; may be repeated", "texts", "N"),
                Option(
                    ("--from",),
                    "where: earliest, latest, an OFFSET, -N (the last N of each partition), or a time: "
                    "2026-11-21T10:00:00Z, @MILLISECONDS; UTC unless it has a zone",
                    metavar="PLACE",
                    default="earliest",
                ),
                Option(("-n", "--limit"), "stop after this many messages", "int", "N"),
                Option(("-f", "--follow"), "wait for more at the end, until Ctrl-C", "flag"),
                _READ_COMMITTED,
                Option(("--format",), "how to print each message", choices=("value", "line", "json"), default="value"),
                *common_options(timeout=_TIMEOUT._replace(help=_UNTIL_END), output=False),
            ),
            "kctl kafka consume -t orders -n 10\n"
            "kctl kafka consume -t orders --from -3    the last three of each partition\n"
            "kctl kafka consume -t orders -p 0 --from 1200 --format json\n"
            "kctl kafka consume -t orders --from latest --follow --format json",
            "Does not join a group. The format `value` prints each value unchanged, and a line end. Without "
            "--follow, the command stops where the log ended when the command started. --from -N counts offsets: if "
            "compaction or transactions left gaps, there are fewer messages.",
        ),
    )
}

_CLUSTER = """\
kctl takes the cluster from the first of these that is given: -b HOST:PORT (no TLS or SASL), --context NAME or
KCTL_CONTEXT ([contexts.NAME] of kctl.toml, with TLS and SASL), [kafka] of the fleet's kctl.toml (-c, KCTL_CONFIG,
./kctl.toml, or your only running fleet). If you give -b and a context, -b replaces only the servers of the context, and
its TLS and SASL still apply."""
_EXIT_CODES = """\
Exit codes: 0 ok, 1 failed, 2 wrong usage, 3 incomplete: a row or a broker is missing, 10 no broker answers, 11 no such
topic, 17 authentication failed, 18 not authorised, 19 no such group, 20 no such partition, 21 message too large, 22 not
enough replicas, 23 wrong protocol (TLS, SASL or not Kafka), 24 the group has live members."""
_EPILOG = f"{_CLUSTER}\n\n{_EXIT_CODES}"

_MODULES = {
    "groups": ("groups", "group", "delete-group", "reset-offsets"),
    "topics": ("topics", "topic", "brokers", "create-topic", "delete-topic", "alter-topic"),
    "offsets": ("lag", "list-offsets", "offset-fetch"),
}
"""Modules with several commands; others have the command of their name."""
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def run_function(module: str, function: str, options: argparse.Namespace, env: Mapping[str, str]) -> int | None:
    light_imports.install()  # before the module imports kafka-python
    code: int | None = getattr(import_module(module), function)(options, env)
    return code


def _run(name: str, options: argparse.Namespace, env: Mapping[str, str]) -> int | None:
    function = name.replace("-", "_")
    return run_function(f"kctl.cli.kafka.{_MODULE_OF.get(name, function)}", function, options, env)


COMMAND = CommandGroup(
    "kafka",
    "Inspect and change a Kafka cluster.",
    tuple(each._replace(epilog=_EPILOG, run=partial(_run, each.name)) for each in COMMANDS.values()),
    _EPILOG,
)
