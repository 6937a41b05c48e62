from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from kctl.rows.advice import Advice, Answer, HotPartition, Outcome
from kctl_agent.replies.encode import encoded
from tests.command_lines import Kctl, Master
from tests.servers.scripted_agent import Answers

KEEP = Advice(Answer.KEEP, "it fits", 4, 2, workers=4, needed=4, sinkers=2, since=1.0, arrivals_per_second=9.6)
HOT = replace(KEEP, answer=Answer.HOT, reason="orders-3 alone", hot=(HotPartition("orders", 3, 1.42),))


@pytest.mark.shows("`kctl advise` answers in one line, with exit code 0 keep, 1 another answer, 3 unknown")
@pytest.mark.parametrize(
    ("advice", "code", "first"),
    [
        (KEEP, 0, "keep: it fits"),
        (replace(KEEP, answer=Answer.WORKERS, workers=6), 1, "workers 4 -> 6: it fits"),
        (replace(KEEP, answer=Answer.SINKERS, sinkers=3), 1, "sinkers 2 -> 3: it fits"),
        (HOT, 1, "hot: orders-3 alone"),
        (Advice.unknown("the group is rebalancing", 4), 3, "unknown: the group is rebalancing"),
    ],
)
def test_the_answer_comes_first(kctl: Kctl, master: Master, advice: Advice, code: int, first: str) -> None:
    master({"advice": Answers(encoded(advice))})

    ran = kctl("advise")

    assert (ran.code, ran.out.splitlines()[0], ran.err) == (code, first, "")


def test_numbers_hot_partitions_and_the_last_outcome_follow(kctl: Kctl, master: Master) -> None:
    master({"advice": Answers(encoded(replace(HOT, outcome=Outcome(1, "2 -> 4 worked as expected", is_met=True))))})

    table, document = kctl("advise"), kctl("advise", "-o", "json")

    assert table.out.splitlines()[1:] == [
        "since 1970-01-01T00:00:01Z  needed 4  hosts -  arrivals/s 10  capacity/s -",
        "hot: orders-3 needs 1.4 workers",
        "2 -> 4 worked as expected",
    ]
    assert json.loads(document.out)["hot"] == [{"topic": "orders", "partition": 3, "workers": 1.42}]
