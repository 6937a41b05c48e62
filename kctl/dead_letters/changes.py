"""Changes selected dead letters, over HTTP and on the command line."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from kctl.dead_letters.sending import Send
    from kctl_agent.storage.base import DeadLetterStore
    from kctl_agent.storage.dead_letter_pages import Progress
    from kctl_agent.storage.selection import Selection

Verb: TypeAlias = Literal["requeue", "delete", "send"]


def changed(
    store: DeadLetterStore,
    verb: Verb,
    selection: Selection,
    expect: int | None,
    progress: Progress,
    sending: Callable[[], AbstractContextManager[Send]],
) -> int:
    """Returns how many were changed. `sending` opens the sender to a topic. Raises what it and `DeadLetterStore`
    raise."""
    if verb == "requeue":
        return store.requeue_dead(selection, expect, progress)
    if verb == "delete":
        return store.remove_dead(selection, expect, progress)
    with sending() as send:
        return store.move_dead(send, selection, expect, progress)
