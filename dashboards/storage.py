"""*Storage and sinkers*: what waits for the handler, and how the handler is doing."""

from dashboards.board import FLEET, WORKER, Board
from dashboards.panels import GROUP_LEGEND, lines, numbers

__all__ = ["build"]

_SINKER = "{{cluster}} {{group}} {{worker}}"
_BY_SINKER = "max by (cluster, group, worker)"
_WAITING = f'kctl_storage_messages{{{FLEET}, state=~"pending|processing"}}'
_HELD = f"sum by (cluster, group) (max by (cluster, group, state) ({_WAITING}))"
_LIMIT = f"max by (cluster, group) (kctl_storage_limit_messages{{{FLEET}}})"


def build() -> Board:
    board = Board(
        "storage",
        "Storage and sinkers",
        "The storage, the sinkers and their handler.",
        ("worker", f"kctl_sinker_messages_total{{{FLEET}}}"),
    )
    board.row(
        "Storage",
        [
            numbers(
                "Dead letters",
                "Messages that could not be handled. kctl storage dead list shows them.",
                "short",
                (f'max by (cluster, group) (kctl_storage_messages{{{FLEET}, state="dead"}})', GROUP_LEGEND),
                width=8,
                warns_above=1,
            ),
            numbers(
                "Storage, share of its limit",
                "At 100 %, workers take no new batch.",
                "percentunit",
                (f"{_HELD} / {_LIMIT}", GROUP_LEGEND),
                width=8,
                warns_above=0.8,
            ),
            numbers(
                "Size",
                "The size of the storage's content.",
                "bytes",
                (f"max by (cluster, group) (kctl_storage_bytes{{{FLEET}}})", GROUP_LEGEND),
                width=8,
            ),
            lines(
                "Messages in the storage",
                "Sinkers have claimed the messages in processing. Dead messages are dead letters.",
                "short",
                (
                    f"max by (cluster, group, state) (kctl_storage_messages{{{FLEET}}})",
                    "{{cluster}} {{group}} {{state}}",
                ),
                width=12,
            ),
            lines(
                "Stored and handled",
                "Messages that workers store and sinkers handle per second.",
                "mps",
                (
                    f"sum by (cluster, group) (rate(kctl_batch_rows_total{{{FLEET}}}[$__rate_interval]))",
                    f"{GROUP_LEGEND} stored",
                ),
                (
                    f'sum by (cluster, group) (rate(kctl_sinker_messages_total{{{FLEET}, outcome="handled"}}'
                    "[$__rate_interval]))",
                    f"{GROUP_LEGEND} handled",
                ),
                width=12,
            ),
        ],
    )
    board.row(
        "Table",
        [
            lines(
                "Files of the table",
                "Small files slow readers down. kctl storage optimize compacts them.",
                "short",
                (f"max by (cluster, group) (kctl_table_files{{{FLEET}}})", f"{GROUP_LEGEND} all"),
                (f"max by (cluster, group) (kctl_table_small_files{{{FLEET}}})", f"{GROUP_LEGEND} small"),
                width=12,
            ),
            lines(
                "Commits to the table",
                "New versions by any writer, and the workers' failed and repeated commits.",
                "short",
                (
                    f"max by (cluster, group) (delta(kctl_table_version{{{FLEET}}}[$__rate_interval]))",
                    f"{GROUP_LEGEND} versions",
                ),
                (
                    "sum by (cluster, group) "
                    f"(increase(kctl_table_commit_failures_total{{{WORKER}}}[$__rate_interval]))",
                    f"{GROUP_LEGEND} failed",
                ),
                (
                    "sum by (cluster, group) "
                    f"(increase(kctl_table_commit_retries_total{{{WORKER}}}[$__rate_interval]))",
                    f"{GROUP_LEGEND} repeated",
                ),
                width=12,
            ),
        ],
    )
    board.row(
        "Sinkers",
        [
            lines(
                "Settled by outcome",
                "Retried messages will be tried again. The lease of lost messages expired first.",
                "mps",
                (
                    "sum by (cluster, group, outcome) "
                    f"(rate(kctl_sinker_messages_total{{{WORKER}}}[$__rate_interval]))",
                    "{{cluster}} {{group}} {{outcome}}",
                ),
                is_stacked=True,
            ),
            lines(
                "Handled by sinker",
                "Messages that each sinker handles per second.",
                "mps",
                (
                    "sum by (cluster, group, worker) "
                    f'(rate(kctl_sinker_messages_total{{{WORKER}, outcome="handled"}}[$__rate_interval]))',
                    _SINKER,
                ),
            ),
            lines(
                "Not acknowledged",
                "The share of settled messages that were retried or became dead letters.",
                "percentunit",
                (
                    "sum by (cluster, group) "
                    f'(rate(kctl_sinker_messages_total{{{WORKER}, outcome=~"retried|dead"}}[$__rate_interval])) / '
                    f"(sum by (cluster, group) (rate(kctl_sinker_messages_total{{{WORKER}}}[$__rate_interval])) > 0)",
                    GROUP_LEGEND,
                ),
            ),
            lines(
                "Duration of the handler",
                "p50 and p99 of the latest calls.",
                "s",
                (
                    f"max by (cluster, group, worker, percentile) (kctl_sinker_handler_duration_seconds{{{WORKER}}})",
                    f"{_SINKER} {{{{percentile}}}}",
                ),
            ),
            lines(
                "Handler errors",
                "Calls that raised, took too long or returned a wrong result.",
                "short",
                (
                    "sum by (cluster, group, worker) "
                    f"(increase(kctl_sinker_handler_errors_total{{{WORKER}}}[$__rate_interval]))",
                    _SINKER,
                ),
            ),
            lines(
                "In flight",
                "Messages that the sinker has claimed but not settled yet.",
                "short",
                (f"{_BY_SINKER} (kctl_sinker_in_flight_messages{{{WORKER}}})", _SINKER),
            ),
        ],
    )
    return board
