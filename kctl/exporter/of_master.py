"""Metrics of the master itself: its socket, collections and events."""

from kctl import __version__
from kctl.exporter.metric import GROUP, Histogram, Metric, Single, by_label, quoted, single
from kctl.master.snapshot import RPC_BUCKETS_SECONDS
from kctl.rows.advice import Answer

METRICS: tuple[Metric, ...] = (
    Single(
        name="kctl_advice",
        labels=(*GROUP, "answer"),
        sentence=f"1 for the answer of `kctl advise`, 0 for other answers. The answers are {quoted(Answer)}.",
        samples=lambda snapshot: by_label({each.value: float(each is snapshot.advice.answer) for each in Answer}),
    ),
    Single(
        name="kctl_advised_workers",
        sentence="The number of workers that `kctl advise` names.",
        samples=lambda snapshot: single(snapshot.advice.workers),
    ),
    Single(
        name="kctl_advised_sinkers",
        sentence="The advised number of sinkers. Absent without sinkers.",
        samples=lambda snapshot: single(snapshot.advice.sinkers),
    ),
    Single(
        name="kctl_advised_hosts",
        sentence="The number of hosts for the advised workers. Absent if the fleet runs on one host.",
        samples=lambda snapshot: single(snapshot.advice.hosts),
    ),
    Single(
        name="kctl_worker_capacity_per_second",
        sentence="The messages per second that one worker can process in full batches, measured over the last minutes.",
        samples=lambda snapshot: single(snapshot.advice.capacity_per_second),
    ),
    Single(
        name="kctl_rpc_requests_total",
        labels=(*GROUP, "method", "outcome"),
        sentence="Requests that `master.sock` has answered: `ok`, `incomplete` (a process did not answer) or `failed`.",
        samples=lambda snapshot: [
            ((method, outcome), count)
            for method, stats in snapshot.rpc.items()
            for outcome, count in stats.outcomes.items()
        ],
    ),
    Histogram(
        name="kctl_rpc_duration_seconds",
        labels=(*GROUP, "method"),
        bounds=RPC_BUCKETS_SECONDS,
        sentence="The duration of requests on `master.sock`, from the complete request to the complete reply.",
        samples=lambda snapshot: [
            ((snapshot.cluster, snapshot.group, method), stats.buckets, stats.seconds)
            for method, stats in snapshot.rpc.items()
        ],
    ),
    Single(
        name="kctl_operations_total",
        labels=(*GROUP, "operation", "outcome"),
        sentence="Operations since the master's start, by name and outcome: `done`, `failed`, `unknown` (may still "
        "happen), or `refused` (malformed, or in conflict with another operation).",
        samples=lambda snapshot: snapshot.operations_total.items(),
    ),
    Single(
        name="kctl_http_refused_total",
        labels=(*GROUP, "code"),
        sentence="HTTP requests and connections that the master rejected before they reached a route, since its "
        "start. `code` is an error code (http.md), or `tls_handshake` for a handshake that failed or took too long.",
        samples=lambda snapshot: by_label(snapshot.http_refused_total),
    ),
    Single(
        name="kctl_events_total",
        labels=(*GROUP, "kind"),
        sentence="Events since the master's start, by kind: `verdict`, `advice`, `rebalance`, `restart`, `status`, "
        "`state`, `operation`, and events of workers and sinkers: `rewound`, `skipped`, `truncated`, "
        "`topic_recreated`, `records_lost`, `storage_rolled_back`, `storage_lost_offsets`, `other_storage`, `lost`, "
        "`query_failed`, ….",
        samples=lambda snapshot: by_label(snapshot.events_total),
    ),
    Single(
        name="kctl_collect_duration_seconds",
        sentence="The duration of the last collection, for agents and brokers together.",
        samples=lambda snapshot: single(snapshot.collect_seconds),
    ),
    Single(
        name="kctl_collect_last_success_timestamp_seconds",
        labels=(*GROUP, "part"),
        sentence="When a part of the collection last succeeded: `agents` (all answered a ping), and the brokers' "
        "`committed`, `offsets` and `group`.",
        samples=lambda snapshot: by_label(snapshot.last_success),
    ),
    Single(
        name="kctl_hosts",
        labels=(*GROUP, "host", "state"),
        sentence="1 for each host of the fleet and its state, as this host knows it: `here`, `present`, `leaving`, "
        "`silent` (a member of the masters' group that did not answer), `gone` or `refused` (hosts.md). "
        "Absent with one host.",
        samples=lambda snapshot: (
            [((row.name, row.state), 1.0) for row in snapshot.hosts.rows] if snapshot.hosts else ()
        ),
    ),
    Single(
        name="kctl_build_info",
        labels=(*GROUP, "version"),
        sentence="Always 1. `version` is the version of the master.",
        samples=lambda _: by_label({__version__: 1.0}),
    ),
)
