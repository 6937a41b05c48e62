"""Real sinkers under a real master, and messages that die."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from kctl_agent.storage.file import FileStorage
from tests.conformance.given import fill
from tests.conftest import eventually
from tests.fleet_snapshot import TOKEN
from tests.integration.conftest import Master, write_secret
from tests.integration.sinkers import place, sinkers, storage

__all__ = ["place", "storage"]


def findings(one: Master) -> dict[str, str]:
    now = one.ask("verdict", of_master=True).result
    return {each["about"]: each["reason"] for each in (now, *now["also"])}


@pytest.mark.shows("sinkers are supervised and listed like workers")
def test_sinkers_are_in_every_list(place: Path, master: Callable[..., Master], storage: FileStorage) -> None:
    fill(storage, 100)
    one = master(sinkers=sinkers("counts"), workers={"count": 1})

    assert {name: row["kind"] for name, row in one.status().items()} == {
        "sinker-0": "sinker",
        "sinker-1": "sinker",
        "worker-0": "worker",
    }

    def handled() -> int:
        # A sinker answers before it has opened its storage, and publishes its stats only then.
        rows = one.ask("workers").result["rows"]
        return sum(row.get("sinker", {}).get("handled", 0) for row in rows if row["kind"] == "sinker")

    eventually(lambda: handled() == 100)
    for question in ("kafka_lag", "offset_checker", "member_leader", "metadata_brokers", "metadata_topics"):
        assert one.ask(question).asked == ("worker-0",)
    for question in ("ping", "describe", "workers", "block_size"):
        reply = eventually(lambda question=question: (reply := one.ask(question)).complete and reply)
        assert reply.asked == ("sinker-0", "sinker-1", "worker-0")

    eventually(lambda: sum(float(n) for n in re.findall(r'outcome="handled".* (\S+)', one.get("/metrics"))) == 100)
    assert one.stop() == 0


@pytest.mark.shows("dead letters that are requeued over HTTP are handled again")
@pytest.mark.shows("the verdict has number and error class of recent dead letters, never the error's text")
def test_dead_messages_are_the_verdict(place: Path, master: Callable[..., Master], storage: FileStorage) -> None:
    fill(storage, 1000)
    write_secret(place / "token", TOKEN)
    http = {"token_file": "token"}
    one = master(sinkers=sinkers("fifths_die", batch_size=10, max_tries=1), workers={"count": 0}, http=http)

    eventually(lambda: storage.stats().dead == 200)
    eventually(lambda: ": 200 in 5 minutes, ValueError: " in findings(one).get("dead letters", ""), 12)

    assert re.search(
        r"20. of 1\d+ tries failed in the last minute, ValueError; `kctl logs sinker-\d` shows more$",
        findings(one)["handler"],
    )
    assert "card" not in json.dumps(one.ask("verdict", of_master=True).result)
    rows = one.ask("workers").result["rows"]
    eventually(lambda: not [row for row in one.ask("workers").result["rows"] if row["last_error"]])
    assert {row["sinker"]["error_class"] for row in rows} - {None} == {"ValueError"}

    given: dict[str, Any] = {"base_url": one.about["http_url"], "headers": {"authorization": f"Bearer {TOKEN}"}}
    with httpx.Client(**given) as client:
        [died] = client.get("/api/v1/dead-letter-classes").json()["rows"]
        assert (died["error_class"], died["count"]) == ("ValueError", 200)
        client.post("/api/v1/dead-letters/requeue", json={"filter": {"offset_from": 995}, "count": 1})
    done = one.ask("operations", of_master=True).result["rows"]
    assert [row["text"] for row in done] == ["1 of 1 dead letters requeued"]
    eventually(lambda: storage.stats().dead == 200, what="it is handled again, and dies")
    storage.remove_dead()
    eventually(lambda: "dead letters" not in findings(one), 12)
