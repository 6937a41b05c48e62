"""The memory of a master whose 8 workers are at work, that is scraped and asked: it is to stay where it is.

The workers are real processes with real agents that report a batch twice a second; once a second `/metrics` and
`/api/v1/lag` are fetched and a question goes to all workers.

    python -m benchmarks.master_under_load [--workers 8] [--seconds 60]

Prints one JSON line, `master_under_load`: `rss_mib` is to be under 120, and `rss_growth_mib` from the first to the last
tenth of the time under 3. `make bench-long` takes 30 minutes.
"""

import argparse
import json
import urllib.request
from pathlib import Path

from benchmarks._fleet import TOPIC, running_broker
from benchmarks.master_at_rest import measured
from kctl.rpc.client import call
from kctl_agent.rpc.messages import Request, Role, reducer_method
from tests.servers import topics

LOAD = 'KCTL_BENCHMARK_LOAD = "1"'


def main() -> None:
    parser = argparse.ArgumentParser(description="the memory of a master under load")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with running_broker() as (broker, folder):
        topics.create_topic(broker.bootstrap_servers, TOPIC, options.workers * 8)
        servers = broker.bootstrap_servers
        print(
            json.dumps(
                {
                    "benchmark": "master_under_load",
                    **measured(folder, servers, options.workers, options.seconds, LOAD, _query),
                }
            )
        )


def _query(run_dir: Path) -> None:
    url = json.loads((run_dir / "master.json").read_text())["http_url"]
    for path in ("/metrics", "/api/v1/lag"):
        with urllib.request.urlopen(url + path, timeout=10) as response:
            response.read()
    question = Request(Role.EXTERNAL, "kafka_lag", reducer_method("kafka_lag"))
    assert call(run_dir / "master.sock", question, 10.0).ok


if __name__ == "__main__":
    main()
