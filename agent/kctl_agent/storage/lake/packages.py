"""The packages that a table needs, each an extra of `kctl-agent`: asked for before anything of them is imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from kctl_agent.storage.base import StorageMisconfigured

__all__ = ["need_packages"]


def need_packages(settings: Mapping[str, Any]) -> None:
    """Those of the `[storage]` settings of mode `lake`. Raises StorageMisconfigured: some are not installed."""
    missing = {name: why for module, name, why in _needed(settings) if find_spec(module) is None}
    if missing:
        raise StorageMisconfigured(
            f"{' and '.join(missing.values())} needs {', '.join(missing)}: pip install {' '.join(missing)}"
        )


def _needed(settings: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The module, what it is called where it is installed from, and what needs it."""
    yield "deltalake", "deltalake", 'storage.mode = "lake"'
    if settings["uri"].startswith("s3://"):
        yield "obstore", "obstore", "storage.uri = s3://…"
