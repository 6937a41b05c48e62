"""`kctl demo`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from kctl.cli.command import option
from kctl.cli.options import OutputOption
from kctl.cli.signature import command
from kctl.errors import UsageError
from kctl_agent.storage.kinds import KINDS

_STORAGES = tuple(name for name, kind in KINDS.items() if kind.is_file or kind.is_table)


def _demo(
    workers: Annotated[int, option("--workers", least=1, metavar="N", help="How many Spark workers.")] = 2,
    partitions: Annotated[
        int, option("--partitions", least=1, metavar="N", help="How many partitions the topic has.")
    ] = 8,
    rate: Annotated[float, option("--rate", least=0, metavar="N", help="Messages produced per second.")] = 2000,
    seconds: Annotated[float | None, option("--for", least=0, metavar="SECONDS", help="Default: until Ctrl-C.")] = None,
    storage: Annotated[
        str,
        option(
            "--storage",
            choices=_STORAGES,
            help="Where messages wait for the handler; lake: a Delta table, without a handler.",
        ),
    ] = _STORAGES[0],
    sinkers: Annotated[
        int, option("--sinkers", least=0, metavar="N", help="How many sinkers handle what is stored.")
    ] = 0,
    broker: Annotated[
        bool, option("--broker-only", help="Only a broker, for experiments; --dir keeps its topics.")
    ] = False,
    port: Annotated[
        int | None, option("--port", least=1, metavar="N", help="For --broker-only. Default: any free port.")
    ] = None,
    output: OutputOption = "table",
    directory: Annotated[
        Path | None,
        option("--dir", metavar="PATH", help="The folder for all files. Default: a temporary one."),
    ] = None,
) -> int:
    """Run a demonstration: a broker, a producer and workers.

    Starts a real Kafka broker and Spark workers, produces messages, and counts what was lost or stored twice.

    kctl demo                              until Ctrl-C; ask it from another terminal: kctl rpc offset_checker
    kctl demo --for 60 -o json             exit 0 only if nothing was lost and nothing stored twice
    kctl demo --sinkers 2 --for 60         and everything was handled
    kctl demo --storage lake --for 60      into a Delta table, counted by delta-rs
    kctl demo --broker-only --dir kafka    no demo: a broker, with the topics that it had there
    """
    if output == "yaml":
        raise UsageError("kctl demo prints a table or json")
    if sinkers and not KINDS[storage].is_queue:
        why = "messages become rows of a table" if KINDS[storage].is_table else "the workers call the handler"
        raise UsageError(f"with --storage {storage} {why}: leave out --sinkers")
    from kctl.demo.run import broker_only, main
    from kctl.demo.summary import DemoOptions

    if broker:
        return broker_only(directory, port)
    if port is not None:
        raise UsageError("--port is for --broker-only")
    return main(DemoOptions(workers, partitions, rate, seconds, storage, sinkers), output, directory)


COMMAND = command("demo", _demo)
