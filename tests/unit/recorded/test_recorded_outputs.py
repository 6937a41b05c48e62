from collections.abc import Mapping

import pytest

from tests.recorded_fleet import OUTPUTS, outputs, recorded

RECORDED = recorded()


@pytest.fixture(scope="module")
def current() -> Mapping[str, str]:
    return outputs()


@pytest.mark.shows("tables have the columns of Kafka's tools; unknown is `-`, and zero is 0")
@pytest.mark.shows("members of a group and their partitions are shown on demand, never as labels")
@pytest.mark.shows("an attached agent cannot take a worker's row by its name")
@pytest.mark.parametrize("name", RECORDED)
def test_the_output_is_the_recorded_one(name: str, current: Mapping[str, str]) -> None:
    assert current[name].rstrip().split("\n") == RECORDED[name].rstrip().split("\n"), (
        f"if it is meant: `python -m tests.recorded_fleet` writes {OUTPUTS.name} anew, and git shows what differs"
    )


def test_every_output_is_recorded(current: Mapping[str, str]) -> None:
    assert list(current) == list(RECORDED)
