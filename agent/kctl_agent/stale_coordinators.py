"""What kafka-python does not forget by itself: the broker that coordinates a group, after another has taken over."""

from __future__ import annotations

from typing import Any

__all__ = ["forget_coordinators"]


def forget_coordinators(admin: Any) -> None:
    """Have a `KafkaAdminClient` find every group's coordinator anew; to be called when a question to one failed.

    Its cache keeps a coordinator for good, also one that is dead or answers that it is none (kafka-python 3.0.12), and
    it has no public way to be emptied.
    """
    admin._manager.cluster._coordinators.clear()  # noqa: SLF001 - see above
