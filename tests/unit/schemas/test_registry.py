"""Answers of a schema registry that would cost far more than their bytes. The registry's answers are made up here."""

import json
from collections.abc import Sequence

import pytest

from kctl_agent.errors import RegistryUnusable, Undecodable
from kctl_agent.schemas.formats import RegistrySettings
from kctl_agent.schemas.registry import MOST_REFERENCES, Registry


class Answering(Registry):
    """The subject `s` has versions: each is a record, and refers `twice` to the version below."""

    def __init__(self, twice: Sequence[str] = ("s", "s"), body: bytes | None = None) -> None:
        super().__init__(RegistrySettings("http://registry"))
        self._twice, self._body = twice, body

    def _answer(self, path: str) -> tuple[int, bytes]:
        if self._body is not None:
            return 200, self._body
        version = int(path.rpartition("/")[2])
        below = [{"subject": each, "version": version - 1} for each in self._twice if version > 1]
        fields = [{"name": "f", "type": f"R{version - 1}" if version > 1 else "int"}]
        schema = json.dumps({"type": "record", "name": f"R{version}", "fields": fields})
        return 200, json.dumps({"schema": schema, "references": below}).encode()


def prefix(number: int) -> bytes:
    return b"\0" + number.to_bytes(4)


@pytest.mark.timeout(20)
def test_a_schema_that_is_referenced_twice_is_used_once() -> None:
    assert Answering().by_prefix(prefix(64)).name == "R64"


def test_a_schema_with_too_many_references_is_rejected() -> None:
    with pytest.raises(Undecodable, match=rf"UnsupportedSchema: .* more than {MOST_REFERENCES} references"):
        Answering().by_prefix(prefix(5000))


def test_an_answer_that_nests_too_deeply_is_an_outage() -> None:
    with pytest.raises(RegistryUnusable, match="something other than a schema"):
        Answering(body=b"[" * 100_000).by_prefix(prefix(1))
