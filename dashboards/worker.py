"""*Worker*: processes and batches."""

from dashboards.board import FLEET, WORKER, Board
from dashboards.panels import lines, states

__all__ = ["build"]

_WORKER = "{{cluster}} {{group}} {{worker}}"
_BY_WORKER = "max by (cluster, group, worker)"


def build() -> Board:
    board = Board(
        "worker",
        "Worker",
        "The state, batches, memory and restarts of workers and sinkers.",
        ("worker", f"kctl_worker_up{{{FLEET}}}"),
    )
    board.row(
        "Processes",
        [
            states(
                "Answers",
                "Whether the agent answered a ping.",
                (f"{_BY_WORKER} (kctl_worker_up{{{WORKER}}})", _WORKER),
            ),
            states(
                "State",
                "The state of the process in the supervisor.",
                (
                    f"max by (cluster, group, worker, state) (kctl_worker_state{{{WORKER}}}) == 1",
                    f"{_WORKER} {{{{state}}}}",
                ),
            ),
            lines(
                "Restarts by reason",
                "Restarts, by the reason why the process had ended.",
                "short",
                (
                    "sum by (cluster, group, worker, reason) "
                    f"(increase(kctl_worker_restarts_total{{{WORKER}}}[$__rate_interval]))",
                    f"{_WORKER} {{{{reason}}}}",
                ),
            ),
            lines(
                "Memory",
                "Memory of all processes of the worker together, including its JVM.",
                "bytes",
                (f"{_BY_WORKER} (kctl_worker_resident_memory_bytes{{{WORKER}}})", _WORKER),
            ),
            lines(
                "Memory, share of its limit",
                "At 100 %, the supervisor restarts the worker. No line without a limit.",
                "percentunit",
                (
                    f"{_BY_WORKER} (kctl_worker_resident_memory_bytes{{{WORKER}}}) / {_BY_WORKER} "
                    f"(kctl_worker_memory_limit_bytes{{{WORKER}}})",
                    _WORKER,
                ),
            ),
        ],
    )
    board.row(
        "Batches",
        [
            lines(
                "Messages stored",
                "Messages that each worker stores per second.",
                "mps",
                (
                    f"sum by (cluster, group, worker) (rate(kctl_batch_rows_total{{{WORKER}}}[$__rate_interval]))",
                    _WORKER,
                ),
            ),
            lines(
                "Duration of the last batch",
                "The duration of each worker's last finished batch.",
                "s",
                (f"{_BY_WORKER} (kctl_batch_duration_seconds{{{WORKER}}})", _WORKER),
            ),
            lines(
                "Batch in progress",
                "How long the present batch has been running. No line between batches.",
                "s",
                (f"{_BY_WORKER} (kctl_batch_running_seconds{{{WORKER}}})", _WORKER),
            ),
            lines(
                "Batches",
                "Batches that each worker finishes per second.",
                "ops",
                (f"sum by (cluster, group, worker) (rate(kctl_batches_total{{{WORKER}}}[$__rate_interval]))", _WORKER),
                width=12,
            ),
            lines(
                "Messages per batch",
                "The average number of messages per batch. At workers.max_records_per_batch, batches are full.",
                "short",
                (
                    f"sum by (cluster, group, worker) (rate(kctl_batch_rows_total{{{WORKER}}}[$__rate_interval])) / "
                    f"(sum by (cluster, group, worker) (rate(kctl_batches_total{{{WORKER}}}[$__rate_interval])) > 0)",
                    _WORKER,
                ),
                width=12,
            ),
        ],
    )
    return board
