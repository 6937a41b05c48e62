"""*Group*: partition by partition."""

from dashboards.board import FLEET, TOPIC, Board
from dashboards.panels import GROUP_LEGEND, heat, lines, numbers, states

__all__ = ["build"]

_PARTITION = "{{cluster}} {{group}} {{topic}}-{{partition}}"
_BY_PARTITION = "max by (cluster, group, topic, partition)"
_TOPIC = "{{cluster}} {{group}} {{topic}}"


def build() -> Board:
    board = Board(
        "group",
        "Group",
        "One consumer group, partition by partition: lag, time lag, throughput, when it will have caught up.",
        ("topic", f"kctl_topic_lag{{{FLEET}}}"),
    )
    board.row(
        "Now",
        [
            numbers(
                "Lag",
                "Messages that wait, as far as they are known.",
                "short",
                (f"max by (cluster, group) (kctl_group_lag{{{FLEET}}})", GROUP_LEGEND),
                warns_above=100_000,
            ),
            numbers(
                "Time lag",
                "The longest that a message which waits can have waited.",
                "s",
                (f"max by (cluster, group) (kctl_group_max_lag_seconds{{{FLEET}}})", GROUP_LEGEND),
                warns_above=60,
            ),
            numbers(
                "Growth",
                "By how many messages the lag grows each second; negative while it falls.",
                "mps",
                (f"max by (cluster, group) (kctl_group_lag_growth_per_second{{{FLEET}}})", GROUP_LEGEND),
            ),
            numbers(
                "Caught up in",
                "Until the last partition has caught up at this pace; unknown while one of them does not.",
                "s",
                (f"max by (cluster, group) (kctl_group_catchup_seconds{{{FLEET}}})", GROUP_LEGEND),
            ),
        ],
    )
    board.row(
        "Partitions",
        [
            heat(
                "Lag, partition by partition",
                "One row for each partition: the darker, the more messages wait. One dark row is a hot key or a held "
                "worker, a dark column a burst or a rebalance.",
                "short",
                (f"{_BY_PARTITION} (kctl_consumer_lag{{{TOPIC}}})", _PARTITION),
            ),
            lines(
                "Lag by partition",
                "End of the partition minus committed offset.",
                "short",
                (f"{_BY_PARTITION} (kctl_consumer_lag{{{TOPIC}}})", _PARTITION),
                width=12,
            ),
            lines(
                "Time lag by partition",
                "The longest that a message which waits in the partition can have waited.",
                "s",
                (f"{_BY_PARTITION} (kctl_consumer_lag_seconds{{{TOPIC}}})", _PARTITION),
                width=12,
            ),
            states(
                "Status by partition",
                "ok, idle, paused, starting, rebalancing, warn, stalled, stopped, losing, rewind, unknown.",
                (
                    "max by (cluster, group, topic, partition, status) "
                    f'(kctl_consumer_status{{{TOPIC}, status!="elsewhere"}}) == 1',
                    f"{_PARTITION} {{{{status}}}}",
                ),
            ),
            lines(
                "Messages above the start of the log",
                "From the start of the log to the committed offset. Retention takes what is below; at 0 it overtakes.",
                "short",
                (
                    f"{_BY_PARTITION} (kctl_consumer_committed_offset{{{TOPIC}}}) - {_BY_PARTITION} "
                    f"(kctl_partition_start_offset{{{TOPIC}}})",
                    _PARTITION,
                ),
                width=12,
            ),
        ],
    )
    board.row(
        "Throughput",
        [
            lines(
                "Messages in and out",
                "What producers add, and what the group commits, each second. A reset of the group shows as a jump.",
                "mps",
                (
                    f"sum by (cluster, group, topic) ({_BY_PARTITION} "
                    f"(deriv(kctl_partition_end_offset{{{TOPIC}}}[$__rate_interval])))",
                    f"{_TOPIC} in",
                ),
                (
                    f"sum by (cluster, group, topic) ({_BY_PARTITION} "
                    f"(deriv(kctl_consumer_committed_offset{{{TOPIC}}}[$__rate_interval])))",
                    f"{_TOPIC} committed",
                ),
                width=12,
            ),
            lines(
                "Growth of the lag by partition",
                "From commit to commit over the last minutes; negative while it falls.",
                "mps",
                (f"{_BY_PARTITION} (kctl_consumer_lag_growth_per_second{{{TOPIC}}})", _PARTITION),
                width=12,
            ),
            lines(
                "Caught up in, by partition",
                "Until the lag is gone at this pace; no line while it does not fall.",
                "s",
                (f"{_BY_PARTITION} (kctl_consumer_catchup_seconds{{{TOPIC}}})", _PARTITION),
                width=12,
            ),
            lines(
                "Read and not committed yet",
                "Position of the worker minus committed offset: what the last batch has stored and not committed.",
                "short",
                (
                    f"{_BY_PARTITION} (kctl_consumer_position_offset{{{TOPIC}}}) - {_BY_PARTITION} "
                    f"(kctl_consumer_committed_offset{{{TOPIC}}})",
                    _PARTITION,
                ),
                width=12,
            ),
        ],
    )
    board.row(
        "Membership",
        [
            lines(
                "Members",
                "As the group's coordinator counts them.",
                "short",
                (f"max by (cluster, group) (kctl_group_members{{{FLEET}}})", GROUP_LEGEND),
            ),
            lines(
                "Rebalances",
                "Changes of the group's generation.",
                "short",
                (
                    f"max by (cluster, group) (changes(kctl_group_generation{{{FLEET}}}[$__rate_interval]))",
                    GROUP_LEGEND,
                ),
            ),
            lines(
                "Age of the oldest offsets",
                "Of any partition, when the collection was taken.",
                "s",
                (f"max by (cluster, group) (kctl_group_stats_age_seconds{{{FLEET}}})", GROUP_LEGEND),
            ),
        ],
    )
    return board
