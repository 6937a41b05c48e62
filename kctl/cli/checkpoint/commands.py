"""`kctl checkpoint`: its commands. For example, `checkpoint show` runs the function `show` in module `show`."""

from functools import partial

from kctl.cli.command import Command, CommandGroup, Option
from kctl.cli.kafka.commands import common_options, run_function

_URI = Option(("URI",), "the query's checkpointLocation: a path, file:// or s3://BUCKET/PREFIX", is_required=True)
_TOPICS = Option(("-t", "--topic"), "only this topic; may be repeated", "texts", "TOPIC")

COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        Command(
            "show",
            "Show a query's lag, and whether Spark would start from its checkpoint.",
            (
                _URI,
                _TOPICS,
                Option(("--read-committed",), "count up to the last stable offset, without open transactions", "flag"),
                *common_options(),
            ),
            "kctl checkpoint show /srv/checkpoints/orders -b 127.0.0.1:9092\n"
            "kctl checkpoint show s3://lake/checkpoints/orders --context production -o json",
            "The lag counts from the end of the newest committed batch. RECORD-TIME is the time of the last message "
            "that was read. Verdicts: ok; lost N: N messages were deleted unread; beyond the end: the log ends before "
            "the query's next offset; looks recreated: the last message that was read is newer than the batch that "
            "read it; new partition: the query has not read it yet; gone: the topic or partition does not exist; "
            "unknown. Exit code 1: Spark would not start.",
        ),
        Command(
            "export",
            "Print a query's processed offsets as startingOffsets for a new query.",
            (_URI, _TOPICS, Option(("--source",), "only this Kafka source of the query, counted from 0", "int", "N")),
            "kctl checkpoint export /srv/checkpoints/orders",
            "Prints the JSON on stdout, and on stderr what it does not contain (state, watermark, batch numbers). It "
            "does not connect to brokers.",
        ),
        Command(
            "commit",
            "Commit a query's processed offsets to a consumer group.",
            (
                _URI,
                Option(("-g", "--group"), "the group, which must have no members", metavar="GROUP", is_required=True),
                _TOPICS,
                Option(
                    ("--follow",),
                    "commit all offsets after each finished batch and once a day, until Ctrl-C or SIGTERM",
                    "flag",
                ),
                Option(
                    ("--interval",),
                    "with --follow: how often to read the checkpoint; otherwise how long it must not change",
                    "seconds",
                    "SECONDS",
                    10.0,
                ),
                Option(("--force",), "move offsets backwards too", "flag"),
                Option(
                    ("--trust",),
                    "commit even if Spark would not start from the checkpoint, or a topic looks recreated",
                    "flag",
                ),
                Option(("-y", "--execute", "--yes"), "do it without asking; required without a terminal", "flag"),
                Option(("--dry-run",), "only show what would be done", "flag"),
                *common_options(),
            ),
            "kctl checkpoint commit /srv/checkpoints/orders -g orders-to-lake        move a job into a fleet\n"
            "kctl checkpoint commit /srv/checkpoints/orders -g report --follow -y    to see its lag in other tools",
            "Without --follow the job must have ended: the command reads the checkpoint twice, --interval apart, and "
            "stops with exit code 26 if a batch was planned or committed in between. A job without new messages writes "
            "nothing, so it looks as if it had ended: stop it first. A batch that was planned but not committed is "
            "read again, as Spark would do; REPEATED shows its offsets. If messages were deleted unread, and for new "
            "partitions, it commits the log start. It does not change a group with members (exit code 24).",
        ),
    )
}

_EPILOG = """\
kctl never writes to a checkpoint. For S3, it uses AWS' own variables (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …) and
roles. It chooses the cluster as `kctl kafka` does: -b HOST:PORT (plain), else --context NAME (TLS, SASL), else the
fleet's kctl.toml.

Exit codes: 0 ok, 1 Spark would not start, 2 wrong usage, 3 incomplete: it is unknown whether Spark would start, or the
broker that the message names did not answer, 10 no broker answers, 24 the group has members, 25 the checkpoint cannot
be read, 26 its offsets cannot be used."""


COMMAND = CommandGroup(
    "checkpoint",
    "Watch a Spark job that kctl does not run, by its checkpoint.",
    tuple(
        each._replace(epilog=_EPILOG, run=partial(run_function, f"kctl.cli.checkpoint.{each.name}", each.name))
        for each in COMMANDS.values()
    ),
    _EPILOG,
)
