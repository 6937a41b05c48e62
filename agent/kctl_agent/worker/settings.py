"""The settings of a worker."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kctl_agent.kafka.security import Security
from kctl_agent.process.bootstrap import ProcessSettings, decoded, fitting
from kctl_agent.schemas.formats import Formats
from kctl_agent.spark.conf import SparkSettings


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    bootstrap_servers: str
    group: str
    topics: tuple[str, ...]
    auto_offset_reset: str
    assignor: str
    session_timeout_seconds: float
    heartbeat_interval_seconds: float
    isolation_level: str
    group_instance_id: str | None
    security: Security = Security()  # noqa: RUF009 - it is immutable
    max_poll_interval_seconds: float = 60.0
    client_id: str = ""
    """Empty: the worker's name. With several hosts it is `node-2/worker-0`; the masters of other hosts show by it who
    reads a partition."""


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    transform: str
    import_dir: Path
    max_records_per_batch: int
    trigger_seconds: float
    on_data_loss: str
    revoke_timeout_seconds: float
    on_unreadable: str = "stop"


@dataclass(frozen=True, slots=True)
class WorkerSettings(ProcessSettings):
    kafka: KafkaSettings
    pipeline: PipelineSettings
    storage: dict[str, Any]
    formats: Formats = Formats()  # noqa: RUF009 - it is immutable
    spark: SparkSettings | None = None  # settings of its own driver; None: it uses the engine's


def parse(line: str) -> WorkerSettings:
    with fitting("worker"):
        given = decoded(line)
        kafka, pipeline, spark = given.pop("kafka"), given.pop("pipeline"), given.pop("spark")
        formats = Formats.of(given.pop("formats", None))
        security = Security(**kafka.get("security", {}))
        return WorkerSettings(
            kafka=KafkaSettings(**{**kafka, "topics": tuple(kafka["topics"]), "security": security}),
            pipeline=PipelineSettings(**{**pipeline, "import_dir": Path(pipeline["import_dir"])}),
            formats=formats,
            spark=None if spark is None else SparkSettings.of(spark, given["name"], given["scratch_dir"]),
            **given,
        )
