"""How often the rules of kctl.status are wrong, beside Burrow's: over random histories of which the truth is known.

Consumers that keep up, are too slow, die, read in long batches, or die and come back, of our workers, of members of
other groups, and of clients that choose their partitions themselves; polled every 1 to 30 s, with bursts, noise and
brokers that do not answer (`_histories.py`). Counted are polls: alarms of a consumer that is well (`false`), and none
of one that is not (`missed`), by the rule that should have noticed it; `any` is an alarm of whatever kind.

    python -m benchmarks.status_rules [--histories 200] [--first 0]

Prints a JSON line for each rule, of ours and of Burrow's. Ours are to be wrong in less than 1 %.
"""

import argparse
import json

from benchmarks._histories import histories
from benchmarks._judgements import Score, burrow_statuses, scores, statuses

_TARGET = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description="how often the status rules are wrong")
    parser.add_argument("--histories", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the number of the first history")
    options = parser.parse_args()
    for whose, judge in (("kctl", statuses), ("burrow", burrow_statuses)):
        found = scores(histories(options.histories, options.first), judge)
        for rule, score in found.items():
            print(json.dumps(_line(whose, rule, score, options.histories)))


def _line(whose: str, rule: str, score: Score, count: int) -> dict[str, object]:
    line: dict[str, object] = {
        "benchmark": "status_rules",
        "rules_of": whose,
        "rule": rule,
        "false_percent": round(100 * score.false_share, 3),
        "missed_percent": round(100 * score.missed_share, 3),
        "polls_well": score.well,
        "polls_not_well": score.ill,
        "histories": count,
    }
    if whose == "kctl":
        line |= {"target_percent": 100 * _TARGET, "met": max(score.false_share, score.missed_share) < _TARGET}
    return line


if __name__ == "__main__":
    main()
