"""Alerts travel from a broker and a fleet through a real Prometheus and Alertmanager to a webhook, and resolve.

The rules are those of deploy/prometheus, with short times and small thresholds where a test cannot wait.
"""

from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import yaml

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, MakeFleet
from tests.acceptance.handlers import REFUSED, REFUSER
from tests.conftest import eventually
from tests.expressions import alerts, rules
from tests.processes import stopped
from tests.prometheus import Alertmanager, Prometheus, Webhook, require
from tests.servers import kafka_tools

pytestmark = pytest.mark.timeout(400)

ALERT_SECONDS = 30.0
LAG_OF_THE_TEST = 300
AT_ONCE = {"KctlConsumerLagHigh", "KctlWorkerDown", "KctlDeadLetters"}
"""The awaited alerts. The others keep their times, and none of them may fire."""


def rules_of_the_test() -> str:
    document = rules()
    for group in document["groups"]:
        for rule in group["rules"]:
            if rule.get("alert") in AT_ONCE:
                rule.pop("for")
            if rule.get("alert") == "KctlConsumerLagHigh":
                rule["expr"] = rule["expr"].replace("> 100000", f"> {LAG_OF_THE_TEST}")
    return yaml.safe_dump(document)


def value(prometheus: Prometheus, expression: str) -> float:
    found = prometheus.query(expression)
    return float(found[0]["value"][1]) if len(found) == 1 else float("nan")


def test_troubles_reach_a_webhook(make_fleet: MakeFleet, tmp_path: Path) -> None:
    require("prometheus", "prometheus-alertmanager")
    fleet = make_fleet(
        workers=1,
        partitions=2,
        workers_more='ping_timeout_seconds = 120.0\nmemory_hard = "16g"',
        storage="limit = 1000000",
        sinkers=f'count = 1\nhandler = "{REFUSER}"\nmax_tries = 1',
    )
    fleet.start()
    eventually(lambda: fleet.is_running("worker-0") and fleet.url(), START_SECONDS, "the worker runs")
    target = str(fleet.url()).removeprefix("http://")
    with ExitStack() as stack:
        webhook = stack.enter_context(closing(Webhook()))
        alertmanager = stack.enter_context(closing(Alertmanager(tmp_path, webhook.url)))
        prometheus = Prometheus(tmp_path, [target], rules=rules_of_the_test(), alertmanager=alertmanager.address)
        stack.enter_context(closing(prometheus))
        lag = f'kctl_topic_lag{{topic="{fleet.topic}"}}'

        load = fleet.load(rate=200)
        eventually(lambda: fleet.is_running("worker-0") and prometheus.query(lag), ALERT_SECONDS, "lag is scraped")
        with stopped([process.pid for process in fleet.family("worker-0")]):
            eventually(lambda: value(prometheus, lag) > LAG_OF_THE_TEST, ALERT_SECONDS, "lag grows while nobody reads")
            alert = webhook.wait("KctlConsumerLagHigh", "firing", ALERT_SECONDS, topic=fleet.topic, group=fleet.group)
            assert (
                f"messages of {fleet.topic} are pending for group {fleet.group}" in alert["annotations"]["description"]
            )
            webhook.wait("KctlWorkerDown", "firing", ALERT_SECONDS, since=0, worker="worker-0")  # either may be first
            fleet.finish(load)
            reported = sum(
                row.lag or 0 for row in kafka_tools.describe_group(fleet.broker.bootstrap_servers, fleet.group)
            )
            eventually(
                lambda: value(prometheus, lag) == reported, ALERT_SECONDS, f"Kafka's own tool reports {reported}"
            )
        webhook.wait("KctlConsumerLagHigh", "resolved", SETTLE_SECONDS, topic=fleet.topic)
        webhook.wait("KctlWorkerDown", "resolved", SETTLE_SECONDS, since=0, worker="worker-0")
        eventually(fleet.is_caught_up, SETTLE_SECONDS, "everything is committed")

        fleet.send(3, REFUSED)
        alert = webhook.wait("KctlDeadLetters", "firing", START_SECONDS, group=fleet.group)
        assert "messages of group" in alert["annotations"]["description"]
        dead = 'kctl_storage_messages{state="dead"}'
        eventually(lambda: value(prometheus, dead) == 3, ALERT_SECONDS, "all three are dead letters")
        fleet.kctl("storage", "dead", "delete", "--yes")
        webhook.wait("KctlDeadLetters", "resolved", ALERT_SECONDS, group=fleet.group)

        def firing() -> set[str]:
            return {name for name, expression in alerts().items() if prometheus.query(expression)}

        eventually(lambda: not firing(), ALERT_SECONDS, "no alert's expression is true of a fleet that is well")
        assert {alert["labels"]["alertname"] for alert in webhook.seen} == AT_ONCE
        assert [rule["lastError"] for rule in prometheus.rules() if rule.get("lastError")] == []
