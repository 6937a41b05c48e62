"""*Fleet*: all groups on one page."""

from dashboards.board import FLEET, TOPIC, Board
from dashboards.panels import GROUP_LEGEND, lines, numbers, states

__all__ = ["build"]


def build() -> Board:
    board = Board(
        "fleet",
        "Fleet",
        "Every fleet that this Prometheus knows: how far behind, how well, and whether its numbers are fresh.",
        ("topic", 'kctl_topic_lag{cluster=~"$cluster", group=~"$group"}'),
    )
    board.row(
        "Now",
        [
            numbers(
                "Lag",
                "Messages between the committed offsets and the ends of the partitions, as far as they are known.",
                "short",
                (f"max by (cluster, group) (kctl_group_lag{{{FLEET}}})", GROUP_LEGEND),
                warns_above=100_000,
            ),
            numbers(
                "Time lag",
                "The longest that a message which waits can have waited. The objective is one minute.",
                "s",
                (f"max by (cluster, group) (kctl_group_max_lag_seconds{{{FLEET}}})", GROUP_LEGEND),
                warns_above=60,
            ),
            numbers(
                "Workers and sinkers that do not answer",
                "Those whose agent did not answer a ping in the last collection.",
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
                "Messages that no handler could handle. They wait for a person: kctl storage dead list.",
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
                "Its age, in Kafka, in the storage, in a handler or waiting for its next try.",
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
                "Messages that wait, from the brokers' own offsets.",
                "short",
                (f"max by (cluster, group) (kctl_group_lag{{{FLEET}}})", GROUP_LEGEND),
            ),
            lines(
                "Time lag by group",
                "The oldest message that waits: for how long at most.",
                "s",
                (f"max by (cluster, group) (kctl_group_max_lag_seconds{{{FLEET}}})", GROUP_LEGEND),
            ),
            lines(
                "Lag by topic",
                "Messages that wait, by topic.",
                "short",
                (f"max by (cluster, group, topic) (kctl_topic_lag{{{TOPIC}}})", "{{cluster}} {{group}} {{topic}}"),
            ),
            states(
                "Verdict by fleet",
                "Whether each fleet does its work, by the worst of its hosts: ok, degraded, unknown or failing.",
                (
                    f'max by (cluster, group, level) (kctl_fleet_verdict{{{FLEET}, level!="ok"}}) == 1 or on (cluster, '
                    f'group) max by (cluster, group, level) (kctl_fleet_verdict{{{FLEET}, level="ok"}}) == 1',
                    "{{cluster}} {{group}} {{level}}",
                ),
            ),
            states(
                "Status by group",
                "The worst status of the group's partitions; only those that occurred have a line.",
                (
                    f'max by (cluster, group, status) (kctl_group_status{{{FLEET}, status!="elsewhere"}}) == 1',
                    "{{cluster}} {{group}} {{status}}",
                ),
            ),
            lines(
                "Messages stored",
                "What the workers put into the storage each second.",
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
                "Members as the group's coordinator counts them, those of other clients included.",
                "short",
                (f"max by (cluster, group) (kctl_group_members{{{FLEET}}})", GROUP_LEGEND),
            ),
            lines(
                "Advised workers",
                "How many workers `kctl advise` names. No line while it is unknown.",
                "short",
                (f"max by (cluster, group) (kctl_advised_workers{{{FLEET}}})", GROUP_LEGEND),
            ),
            lines(
                "Partitions without a worker",
                "No worker of any host answers for them: a worker is down, or a rebalance is under way.",
                "short",
                (f"max by (cluster, group) (kctl_group_unowned_partitions{{{FLEET}}})", GROUP_LEGEND),
            ),
            lines(
                "Events",
                "What happened, by kind.",
                "short",
                (
                    f"sum by (cluster, group, kind) (increase(kctl_events_total{{{FLEET}}}[$__rate_interval]))",
                    "{{cluster}} {{group}} {{kind}}",
                ),
            ),
            states(
                "State of the group",
                "As its coordinator sees it; only states that occurred have a line.",
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
                "Since a part last succeeded",
                "Age of what agents report, and of what brokers report of committed offsets and logs.",
                "s",
                (
                    f"time() - max by (cluster, group, part) (kctl_collect_last_success_timestamp_seconds{{{FLEET}}})",
                    "{{cluster}} {{group}} {{part}}",
                ),
            ),
            lines(
                "Duration of a collection",
                "Agents and brokers together.",
                "s",
                (f"max by (cluster, group) (kctl_collect_duration_seconds{{{FLEET}}})", GROUP_LEGEND),
            ),
            lines(
                "Requests on the control socket",
                "By outcome: incomplete ones lack somebody's answer.",
                "reqps",
                (
                    f"sum by (cluster, group, outcome) (rate(kctl_rpc_requests_total{{{FLEET}}}[$__rate_interval]))",
                    "{{cluster}} {{group}} {{outcome}}",
                ),
            ),
            lines(
                "Duration of those requests, p99",
                "99 of 100 took no longer, from the request read to the reply made.",
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
