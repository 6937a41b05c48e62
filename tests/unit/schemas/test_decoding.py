"""What people see of values that cannot be shown as JSON."""

import json
import sys
from typing import Any

import pytest

from kctl_agent.errors import Undecodable
from kctl_agent.schemas.decoding import Decoder
from kctl_agent.schemas.formats import Formats
from kctl_agent.schemas.plain import MOST_LEVELS

DECODER = Decoder(Formats(key="json", value="json"))


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize(
    "data",
    [nested(MOST_LEVELS + 1), nested(sys.getrecursionlimit() - 100), b"[" * 100_000, b'["\\ud800"]', b'{"\\ud800": 1}'],
)
def test_a_value_that_cannot_be_shown_has_its_reason(data: bytes) -> None:
    document = DECODER.document("value", data, ())

    assert list(document) == ["value_error"]
    assert document["value_error"].startswith("BadRecord: ")


@pytest.mark.parametrize(
    ("data", "shown"),
    [(nested(MOST_LEVELS), json.loads(nested(MOST_LEVELS))), (b'{"k\\u00e4se": [NaN, 1]}', {"käse": ["nan", 1]})],
)
def test_other_values_are_shown(data: bytes, shown: Any) -> None:
    assert DECODER.document("value", data, ()) == {"value_decoded": shown}


def test_json_without_end_is_a_bad_record_for_a_handler() -> None:
    with pytest.raises(Undecodable, match="BadRecord: not JSON"):
        DECODER.value(b"[" * 100_000, ())
