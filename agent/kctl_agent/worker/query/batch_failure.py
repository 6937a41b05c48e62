"""Describes in one line why a batch failed, and whether the storage or the registry was the cause. The driver gets an
executor's exception as text, which may quote a record. Only kctl's own exceptions contain a secret token."""

import re
from dataclasses import dataclass

from kctl_agent.errors import RegistryUnusable, StorageError
from kctl_agent.replies.workers import Outside
from kctl_agent.storage.base import RowRefused, StorageUnusable
from kctl_agent.storage.causes import innermost
from kctl_agent.storage.chunk import GapRefused, StoredOffsetMissing, StoredOffsetMoved

MAX_TEXT = 500
MOVED = (GapRefused.code, StoredOffsetMissing.code, StoredOffsetMoved.code)
OF_RECORD = ("", "bad_order", RowRefused.code, "day_refused")
PY4J = "An error occurred while calling"
FILE = re.compile(r'^File "([^"]+)", line (\d+)')
JAVA_CLASS = re.compile(r"^: (\w+\.)*")


@dataclass(frozen=True, slots=True)
class BatchFailure:
    """Why a batch failed. `is_storage` is true if the storage or the schema registry was unusable. `code` is the code
    of kctl's own exception, or empty."""

    text: str
    is_storage: bool = False
    code: str = ""

    @property
    def outside(self) -> Outside | None:
        return None if not self.is_storage else "registry" if self.code == RegistryUnusable.code else "storage"


class TaskFailed(Exception):
    def __init__(self, token: str, error: StorageError) -> None:
        sentence = " ".join(f"{type(error).__name__}: {error}".split())
        super().__init__(f"{token} {error.code} {sentence[:MAX_TEXT]}")


def failure(error: BaseException, token: str) -> BatchFailure:
    if isinstance(error, StorageError):
        text = f"{type(error).__name__}: {_one_line(error)}"[:MAX_TEXT]
        return BatchFailure(text, isinstance(error, StorageUnusable | RegistryUnusable), error.code)
    if found := re.search(rf"{re.escape(token)} (\w+) ([^\r\n]*)", str(error)):
        return BatchFailure(found[2], found[1] in (StorageUnusable.code, RegistryUnusable.code), found[1])
    return BatchFailure(_one_line(error))


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    traces = [i for i, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if not traces:
        first, *more = lines or [type(error).__name__]
        return (JAVA_CLASS.sub("", more[0]) if more and first.startswith(PY4J) else first)[:MAX_TEXT]
    after = lines[traces[-1] + 1 :]
    found = innermost((file, int(number)) for line in after for file, number in FILE.findall(line))
    place = f" ({found})" if found else ""
    raised = [
        line for line in after if not line.startswith(("File ", "^", "~")) and ": " in line and " at " not in line
    ]
    return (raised[-1] if raised else after[-1])[: MAX_TEXT - len(place)] + place
