from __future__ import annotations

import re
import tomllib
from contextlib import nullcontext
from pathlib import Path

import jsonschema_rs
import pytest

from kctl.config.schema import json_schema
from kctl.errors import ConfigError
from tests.configurations import KAFKA, loaded

AVRO = 'value_format = "avro"\n[schema_registry]\nurl = "http://registry:8081/apis/ccompat/v7"\n'
LAKE = '[storage]\nmode = "lake"\n'
DIRECTLY = '[storage]\nmode = "directly"\n'
SINKER = '[sinkers]\ncount = 1\nhandler = "m:f"\n'
CLUSTER = '[spark]\nmaster = "spark://one:7077"'
TABLE = f'{LAKE}uri = "file:///srv/t"\n'


@pytest.mark.shows("contradictory or unused settings are rejected with the reason")
@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ('value_format = "avro"', 'kafka.value_format is "avro" and schema_registry.url is empty'),
        ('key_format = "avro"', 'kafka.key_format is "avro" and schema_registry.url is empty'),
        (f'{AVRO}token_file = "t"\nbasic_auth_file = "b"', "are both set: leave one out"),
        ('value_format = "protobuf"', 'kafka.value_format is "protobuf", but it takes'),
        (AVRO.replace("http://", "http://user:secret@"), "schema_registry.url"),
        ('[spark]\nconf = ["spark.authenticate.secret=secret"]', "spark.conf is"),
        ("[sinkers]\ncount = 2", "sinkers.count is 2, but sinkers.handler is empty"),
        (DIRECTLY, 'storage.mode is "directly", but sinkers.handler is empty'),
        (LAKE, 'storage.mode is "lake", but storage.uri is empty'),
        (f"{TABLE}{SINKER}", 'storage.mode is "lake" and sinkers.count is 1, but batches become rows of a table'),
        (f"{LAKE}uri = 'file:///srv/or#ders'", "`?` and `#` are written as %3F and %23"),
        (f"{LAKE}uri = 's3://key:secret@bucket/t'", 'storage.uri is "s3://key:***@bucket/t"'),
        (f'{TABLE}format = "iceberg"', 'storage.format is "iceberg", but it takes "delta"'),
        (f"{LAKE}uri = 's3://bucket/a//b'", "`s3://BUCKET/PREFIX`"),
        (f"{LAKE}uri = 's3://bucket/'", "`s3://BUCKET/PREFIX`; name a folder in the bucket too"),
        (f"{LAKE}uri = 's3://bucket'", "; name a folder in the bucket too"),
        (f"{LAKE}uri = 's3://bucket/a/'", "; leave the `/` at its end out"),
        (f"{LAKE}uri = 's3a://bucket/a'", "; write s3:// for Spark's s3a://"),
        (f"{LAKE}uri = '/srv/t'", "; write file:// before the path"),
        (f"{LAKE}uri = 'file://srv/t'", "; an absolute path has three slashes: file:///"),
        (f"{LAKE}uri = 'gs://bucket/a'", "; tables cannot be in gs://"),
        ("[storage]\nuri = 'file:///srv/t'", 'storage.uri is set and storage.mode is "file", but only mode "lake"'),
        (f"{TABLE}endpoint = 'http://h:1'", "storage.endpoint is set and storage.uri is file:///srv/t, but only"),
        (f"{TABLE}region = 'eu'", "storage.region is set and"),
        (f"{TABLE}credentials_file = 'k'", "storage.credentials_file is set and"),
        (f"{TABLE}partition_by = ['topic', 'key', 'topic']", "storage.partition_by names topic twice: leave one out"),
        (
            f"{TABLE}partition_by = ['country']",
            "country, but without workers.transform the columns are",
        ),
        (f"{DIRECTLY}{SINKER}", 'storage.mode is "directly" and sinkers.count is 1'),
        (f'{DIRECTLY}[sinkers]\nhandler = "m:f"\n{CLUSTER}', "executors on other machines cannot write"),
        ('[sinkers]\nhandler = "m.f"', "sinkers.handler"),
        ("[sinkers]\nmax_tries = 0", "sinkers.max_tries"),
        (CLUSTER, "executors on other machines cannot write to a file of this one"),
        ("[sinkers]\nhandler_timeout_seconds = 0", "sinkers.handler_timeout_seconds"),
    ],
)
def test_contradictory_settings_are_rejected_with_the_reason(more: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, KAFKA + more)

    assert complaint in str(refused.value)
    assert not re.search("user:secret|=secret|key:secret", str(refused.value))


@pytest.mark.parametrize("more", [AVRO, '[workers]\ntransform = "items:parsed"\n'])
def test_a_schema_or_a_transform_makes_the_columns_that_a_table_is_partitioned_by(tmp_path: Path, more: str) -> None:
    made = loaded(tmp_path, f'{KAFKA}{more}{TABLE}partition_by = ["country"]\n')

    assert made.storage.partition_by == ("country",)


ROOT = Path(__file__).parents[3]
VALIDATOR = jsonschema_rs.Draft7Validator(json_schema())


@pytest.mark.parametrize("path", ["examples/kctl.toml", "deploy/compose/kctl.toml", "deploy/kubernetes/base/kctl.toml"])
def test_files_of_the_repository_are_valid(path: str) -> None:
    VALIDATOR.validate(tomllib.loads((ROOT / path).read_text(encoding="utf-8")))


ALLOWED = (
    "",
    "static_membership = true",
    '[spark.conf]\n"spark.ui.enabled" = false\nspark.sql.shuffle.partitions = 4\n[spark]\njars = ["a.jar"]',
    '[contexts.prod]\nbootstrap_servers = "b:1"\n[clusters.main]\nbootstrap_servers = "c:1,d:2"',
    "[collect]\ninterval_seconds = 2",
)
REJECTED = (
    *("count = 1", "[kafak]", "[http]\nport = 65536", "[http]\nport = true", '[collect]\ninterval_seconds = "2"'),
    *('[log]\nlevel = "debug"', '[workers]\nmemory_soft = "2 GB"', '[exporter]\ngroups = ["/a"]'),
    *('[fleet]\nrun_dir = ""', '[contexts."a b"]\nbootstrap_servers = "b:1"'),
    "[contexts.prod]\ntls_check_hostname = false",
)


@pytest.mark.parametrize("more", [*ALLOWED, *REJECTED])
def test_a_value_is_valid_when_it_can_be_used(tmp_path: Path, more: str) -> None:
    with nullcontext() if more in ALLOWED else pytest.raises(ConfigError):
        loaded(tmp_path, KAFKA + more)

    assert VALIDATOR.is_valid(tomllib.loads(KAFKA + more)) == (more in ALLOWED)
