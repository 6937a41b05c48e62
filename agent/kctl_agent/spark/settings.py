"""The settings that a Spark driver is started with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kctl_agent.storage.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class SparkSettings:
    name: str
    master: str
    driver_memory: str
    jars: tuple[str, ...]
    conf: dict[str, str] = field(repr=False)
    scratch_dir: Path
    import_dir: Path | None
    auth_secret: str | None = field(default=None, repr=False)
    object_store: ObjectStore | None = field(default=None, repr=False)
    workers: int = 1

    @classmethod
    def of(cls, given: dict[str, Any], name: str, scratch_dir: Path) -> SparkSettings:
        import_dir, storage = given["import_dir"], given["storage"]
        return cls(
            **{
                **{name: value for name, value in given.items() if name != "storage"},
                "name": name,
                "scratch_dir": scratch_dir,
                "jars": tuple(given["jars"]),
                "object_store": None if storage is None else ObjectStore.of(storage),
                "import_dir": None if import_dir is None else Path(import_dir),
            }
        )
