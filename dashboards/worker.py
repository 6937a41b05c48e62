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
        "Workers and sinkers as processes: whether they answer, their batches, memory and restarts.",
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
                "As the supervisor sees it; only states that occurred have a line.",
                (
                    f"max by (cluster, group, worker, state) (kctl_worker_state{{{WORKER}}}) == 1",
                    f"{_WORKER} {{{{state}}}}",
                ),
            ),
            lines(
                "Restarts by reason",
                "Starts after an end, by what had ended the process.",
                "short",
                (
                    "sum by (cluster, group, worker, reason) "
                    f"(increase(kctl_worker_restarts_total{{{WORKER}}}[$__rate_interval]))",
                    f"{_WORKER} {{{{reason}}}}",
                ),
            ),
            lines(
                "Memory",
                "Memory of all processes of the worker, its JVM included; a page that forked ones share counts once.",
                "bytes",
                (f"{_BY_WORKER} (kctl_worker_resident_memory_bytes{{{WORKER}}})", _WORKER),
            ),
            lines(
                "Memory of its limit",
                "At 100 % the supervisor restarts it. Nothing where there is no limit.",
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
                "Each second, by worker.",
                "mps",
                (
                    f"sum by (cluster, group, worker) (rate(kctl_batch_rows_total{{{WORKER}}}[$__rate_interval]))",
                    _WORKER,
                ),
            ),
            lines(
                "Duration of the last batch",
                "From its plan to what it has stored.",
                "s",
                (f"{_BY_WORKER} (kctl_batch_duration_seconds{{{WORKER}}})", _WORKER),
            ),
            lines(
                "Batch in progress",
                "For how long it has been running; no line between batches.",
                "s",
                (f"{_BY_WORKER} (kctl_batch_running_seconds{{{WORKER}}})", _WORKER),
            ),
            lines(
                "Batches",
                "Finished each second.",
                "ops",
                (f"sum by (cluster, group, worker) (rate(kctl_batches_total{{{WORKER}}}[$__rate_interval]))", _WORKER),
                width=12,
            ),
            lines(
                "Messages per batch",
                "On average. Near workers.max_records_per_batch the batches are full.",
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
