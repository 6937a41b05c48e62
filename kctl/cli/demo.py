"""`kctl demo`: runs a demo fleet."""

import argparse
from collections.abc import Mapping

from kctl.cli.command import OUTPUT, Command, Option
from kctl.errors import UsageError
from kctl_agent.storage.kinds import KINDS

_STORAGES = tuple(name for name, kind in KINDS.items() if kind.is_file or kind.is_table)


def _run(options: argparse.Namespace, _env: Mapping[str, str]) -> int:
    if options.output == "yaml":
        raise UsageError("kctl demo prints a table or json")
    kind = KINDS[options.storage]
    if options.sinkers and not kind.is_queue:
        why = "messages become rows of a table" if kind.is_table else "the workers call the handler"
        raise UsageError(f"with --storage {options.storage} {why}: leave out --sinkers")
    from kctl.demo.run import broker_only, main
    from kctl.demo.summary import DemoOptions

    if options.broker_only:
        return broker_only(options.dir, options.port)
    if options.port is not None:
        raise UsageError("--port is for --broker-only")
    numbers = options.workers, options.partitions, options.rate, options.for_
    return main(DemoOptions(*numbers, options.storage, options.sinkers), options.output, options.dir)


COMMAND = Command(
    "demo",
    "Run a demonstration: a broker, a producer and workers.",
    (
        Option(("--workers",), "how many Spark workers", "int", "N", 2, least=1),
        Option(("--partitions",), "how many partitions the topic has", "int", "N", 8, least=1),
        Option(("--rate",), "messages produced per second", "number", "N", 2000, least=0),
        Option(("--for",), "default: until Ctrl-C", "number", "SECONDS", least=0),
        Option(
            ("--storage",),
            "where messages go: file (a queue for sinkers), directly (the handler) or lake (a Delta table)",
            default=_STORAGES[0],
            choices=_STORAGES,
        ),
        Option(("--sinkers",), "how many sinkers handle stored messages", "int", "N", 0),
        Option(("--broker-only",), "only a broker, for experiments; --dir keeps its topics", "flag"),
        Option(("--port",), "for --broker-only. Default: any free port", "int", "N", least=1),
        OUTPUT,
        Option(("--dir",), "the folder for all files. Default: a temporary one", "path", "PATH"),
    ),
    "kctl demo                              until Ctrl-C; ask it from another terminal: kctl rpc offset_checker\n"
    "kctl demo --for 60 -o json             exit 0 only if nothing was lost and nothing stored twice\n"
    "kctl demo --sinkers 2 --for 60         exit 0 only if also everything was handled\n"
    "kctl demo --storage lake --for 60      into a Delta table, counted by delta-rs\n"
    "kctl demo --broker-only --dir kafka    no demo: only a broker, with the topics of this folder",
    "Starts a real Kafka broker and Spark workers, produces messages, and counts what was lost or stored twice.",
    run=_run,
)
