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
        "Lag, time lag, throughput and catch-up time of the partitions of a consumer group.",
        ("topic", f"kctl_topic_lag{{{FLEET}}}"),
    )
    board.row(
        "Now",
        [
            numbers(
                "Lag",
                "The lag of the group, in messages.",
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
                "Growth",
                "By how many messages the lag grows per second. Negative while the lag falls.",
                "mps",
                (f"max by (cluster, group) (kctl_group_lag_growth_per_second{{{FLEET}}})", GROUP_LEGEND),
            ),
            numbers(
                "Caught up in",
                "The time until the last partition has caught up. Unknown while any partition's lag does not fall.",
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
                "A darker cell has more lag. A dark row shows a hot key or a paused worker. A dark column "
                "shows a burst or a rebalance.",
                "short",
                (f"{_BY_PARTITION} (kctl_consumer_lag{{{TOPIC}}})", _PARTITION),
            ),
            lines(
                "Lag by partition",
                "The end of the partition minus the committed offset.",
                "short",
                (f"{_BY_PARTITION} (kctl_consumer_lag{{{TOPIC}}})", _PARTITION),
                width=12,
            ),
            lines(
                "Time lag by partition",
                "The longest time that a message in the partition's lag can have waited.",
                "s",
                (f"{_BY_PARTITION} (kctl_consumer_lag_seconds{{{TOPIC}}})", _PARTITION),
                width=12,
            ),
            states(
                "Status by partition",
                "Status of each partition.",
                (
                    "max by (cluster, group, topic, partition, status) "
                    f'(kctl_consumer_status{{{TOPIC}, status!="elsewhere"}}) == 1',
                    f"{_PARTITION} {{{{status}}}}",
                ),
            ),
            lines(
                "Messages above the start of the log",
                "The committed offset minus the start of the log. Below 0, retention has removed unread messages.",
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
                "What producers add and the group commits per second. A reset of the group appears as a jump.",
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
                "From commit to commit over the last minutes. Negative while the lag falls.",
                "mps",
                (f"{_BY_PARTITION} (kctl_consumer_lag_growth_per_second{{{TOPIC}}})", _PARTITION),
                width=12,
            ),
            lines(
                "Caught up in, by partition",
                "The time until the lag is 0 at this pace. No line while the lag does not fall.",
                "s",
                (f"{_BY_PARTITION} (kctl_consumer_catchup_seconds{{{TOPIC}}})", _PARTITION),
                width=12,
            ),
            lines(
                "Read and not committed yet",
                "The worker's position minus the committed offset.",
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
                "Members according to the group's coordinator.",
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
                "The age of the oldest partition offsets at the time of the collection.",
                "s",
                (f"max by (cluster, group) (kctl_group_stats_age_seconds{{{FLEET}}})", GROUP_LEGEND),
            ),
        ],
    )
    return board
