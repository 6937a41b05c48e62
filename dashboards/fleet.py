"""*Fleet*: all groups on one page."""

from dashboards.board import FLEET, TOPIC, Board
from dashboards.panels import GROUP_LEGEND, lines, numbers, states

__all__ = ["build"]


def build() -> Board:
    board = Board(
        "fleet",
        "Fleet",
        "The lag, status and verdict of every scraped fleet.",
        ("topic", 'kctl_topic_lag{cluster=~"$cluster", group=~"$group"}'),
    )
    board.row(
        "Now",
        [
            numbers(
                "Lag",
                "Messages between the committed offsets and the ends of the partitions.",
                "short",
                (f"max by (cluster, group) (kctl_group_lag{{{FLEET}}})", GROUP_LEGEND),
                warns_above=100_000,
            ),
            numbers(
                "Time lag",
                "The longest time that a message in the lag can have waited.",
                "s",
                (f"max by (cluster, group) (kctl_group_max_lag_seconds{{{FLEET}}})", GROUP_LEGEND),
                warns_above=60,
            ),
            numbers(
                "Workers and sinkers that do not answer",
                "Processes whose agent did not answer a ping in the last collection.",
                "short",
                (
                    f"count by (cluster, group) (kctl_worker_up{{{FLEET}}}) - sum by (cluster, group) "
                    f"(kctl_worker_up{{{FLEET}}})",
                    GROUP_LEGEND,
                ),
                warns_above=1,
            ),
            numbers(
                "Dead letters",
                "Messages that could not be handled. kctl storage dead list shows them.",
                "short",
                (f'max by (cluster, group) (kctl_storage_messages{{{FLEET}, state="dead"}})', GROUP_LEGEND),
                warns_above=1,
            ),
        ],
    )
    board.row(
        "End to end",
        [
            lines(
                "Oldest unhandled message",
                "The age of the oldest unhandled message, in Kafka or in the storage.",
                "s",
                (f"max by (cluster, group) (kctl_oldest_unhandled_seconds{{{FLEET}}})", GROUP_LEGEND),
            ),
        ],
    )
    board.row(
        "Lag",
        [
            lines(
                "Lag by group",
                "The lag of each group, by the brokers' offsets.",
                "short",
                (f"max by (cluster, group) (kctl_group_lag{{{FLEET}}})", GROUP_LEGEND),
            ),
            lines(
                "Time lag by group",
                "The longest time that a message in the group's lag can have waited.",
                "s",
                (f"max by (cluster, group) (kctl_group_max_lag_seconds{{{FLEET}}})", GROUP_LEGEND),
            ),
            lines(
                "Lag by topic",
                "The lag of each topic, in messages.",
                "short",
                (f"max by (cluster, group, topic) (kctl_topic_lag{{{TOPIC}}})", "{{cluster}} {{group}} {{topic}}"),
            ),
            states(
                "Verdict by fleet",
                "Whether each fleet does its work. The host with the worst verdict counts.",
                (
                    f'max by (cluster, group, level) (kctl_fleet_verdict{{{FLEET}, level!="ok"}}) == 1 or on (cluster, '
                    f'group) max by (cluster, group, level) (kctl_fleet_verdict{{{FLEET}, level="ok"}}) == 1',
                    "{{cluster}} {{group}} {{level}}",
                ),
            ),
            states(
                "Status by group",
                "The worst status of the group's partitions.",
                (
                    f'max by (cluster, group, status) (kctl_group_status{{{FLEET}, status!="elsewhere"}}) == 1',
                    "{{cluster}} {{group}} {{status}}",
                ),
            ),
            lines(
                "Messages stored",
                "Messages that the workers store per second.",
                "mps",
                (f"sum by (cluster, group) (rate(kctl_batch_rows_total{{{FLEET}}}[$__rate_interval]))", GROUP_LEGEND),
                width=12,
            ),
        ],
    )
    board.row(
        "Groups",
        [
            lines(
                "Members",
                "Members according to the group's coordinator, including those of other clients.",
                "short",
                (f"max by (cluster, group) (kctl_group_members{{{FLEET}}})", GROUP_LEGEND),
            ),
            lines(
                "Advised workers",
                "The number of workers that `kctl advise` names.",
                "short",
                (f"max by (cluster, group) (kctl_advised_workers{{{FLEET}}})", GROUP_LEGEND),
            ),
            lines(
                "Partitions without a worker",
                "Partitions that no answering worker of any host owns.",
                "short",
                (f"max by (cluster, group) (kctl_group_unowned_partitions{{{FLEET}}})", GROUP_LEGEND),
            ),
            lines(
                "Events",
                "Events, by kind.",
                "short",
                (
                    f"sum by (cluster, group, kind) (increase(kctl_events_total{{{FLEET}}}[$__rate_interval]))",
                    "{{cluster}} {{group}} {{kind}}",
                ),
            ),
            states(
                "State of the group",
                "The state of the group in its coordinator.",
                (
                    f"max by (cluster, group, state) (kctl_group_state{{{FLEET}}}) == 1",
                    "{{cluster}} {{group}} {{state}}",
                ),
                width=16,
            ),
        ],
    )
    board.row(
        "Masters",
        [
            lines(
                "Time since a part last succeeded",
                "The age of the agents' snapshots, and of the brokers' offsets and group state.",
                "s",
                (
                    f"time() - max by (cluster, group, part) (kctl_collect_last_success_timestamp_seconds{{{FLEET}}})",
                    "{{cluster}} {{group}} {{part}}",
                ),
            ),
            lines(
                "Duration of a collection",
                "The time to query agents and brokers.",
                "s",
                (f"max by (cluster, group) (kctl_collect_duration_seconds{{{FLEET}}})", GROUP_LEGEND),
            ),
            lines(
                "Requests on the control socket",
                "Requests per second, by outcome. In an incomplete request, a process did not answer.",
                "reqps",
                (
                    f"sum by (cluster, group, outcome) (rate(kctl_rpc_requests_total{{{FLEET}}}[$__rate_interval]))",
                    "{{cluster}} {{group}} {{outcome}}",
                ),
            ),
            lines(
                "Duration of requests on the control socket, p99",
                "From the complete request to the complete reply.",
                "s",
                (
                    f"histogram_quantile(0.99, sum by (cluster, group, le) "
                    f"(rate(kctl_rpc_duration_seconds_bucket{{{FLEET}}}[$__rate_interval])))",
                    GROUP_LEGEND,
                ),
            ),
            numbers(
                "Version",
                "The version of each master.",
                "short",
                (f"max by (cluster, group, version) (kctl_build_info{{{FLEET}}})", "{{cluster}} {{group}} {{version}}"),
                width=16,
            ),
        ],
    )
    return board
