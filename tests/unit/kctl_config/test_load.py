import os
import re
import tomllib
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import jsonschema_rs
import pytest

from kctl.cli.config import json_schema
from kctl.cli.groups.api_client import URL
from kctl.config.load import LAKE_TRIGGER_SECONDS, load, load_exporter
from kctl.config.sections import Config, HttpSection
from kctl.errors import ConfigError
from tests.configurations import KAFKA, loaded

TOPIC_NAMES = "but it takes a list of texts: topic names of letters, digits, `.`, `_` and `-`"
Written = Callable[..., Config]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return partial(loaded, tmp_path)


def test_the_smallest_file_gives_a_whole_configuration_with_defaults(written: Written, tmp_path: Path) -> None:
    config = written(KAFKA)

    assert config.kafka.topics == ("t",)
    assert (config.workers.count, config.http.port, config.storage.limit) == (1, 9750, 0)
    assert config.fleet.run_dir == tmp_path / "run"
    assert config.storage.path == tmp_path / "data/storage.sqlite"

    lake = KAFKA + '[storage]\nmode = "lake"\nuri = "file:///srv/t"\n'

    assert written(KAFKA).workers.trigger_seconds == 0.0
    assert written(lake).workers.trigger_seconds == LAKE_TRIGGER_SECONDS
    assert written(lake, {"KCTL_WORKERS_TRIGGER_SECONDS": "0"}).workers.trigger_seconds == 0.0


def test_a_later_source_wins_and_is_remembered(written: Written) -> None:
    text = KAFKA + '[workers]\ncount = 2\n[log]\nlevel = "DEBUG"\n'

    config = written(text, {"KCTL_WORKERS_COUNT": "3", "KCTL_HTTP_PORT": "0"}, {"workers.count": "4"})

    assert (config.workers.count, config.sources["workers.count"]) == (4, "flag")
    assert (config.http.port, config.sources["http.port"]) == (0, "KCTL_HTTP_PORT")
    assert (config.log.level, config.sources["log.level"]) == ("DEBUG", "file")
    assert config.sources["fleet.name"] == "default"


@pytest.mark.shows("`fleet.data_dir` moves the storage too; exporter and fleet have different ports")
def test_paths_are_relative_to_the_file_and_the_data_dir_moves_the_storage(written: Written, tmp_path: Path) -> None:
    spark = """
[spark]
jars = ["a.jar", "/lib/b.jar"]
[spark.conf]
"spark.ui.enabled" = false
spark.sql.shuffle.partitions = 4
"""
    config = written(KAFKA + spark, {"KCTL_FLEET_LOG_DIR": "elsewhere/logs"}, {"fleet.run_dir": "/run/kctl"})

    assert config.spark.jars == (tmp_path / "a.jar", Path("/lib/b.jar"))
    assert config.fleet.log_dir == tmp_path / "elsewhere/logs"
    assert config.fleet.run_dir == Path("/run/kctl")
    assert config.spark.conf == {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4"}, "quoted or not"

    moved = KAFKA + '[fleet]\ndata_dir = "/srv/kctl"\n'

    assert written(moved).storage.path == Path("/srv/kctl/storage.sqlite")
    assert written(KAFKA, {"KCTL_FLEET_DATA_DIR": "other"}).storage.path == tmp_path / "other/storage.sqlite"
    assert written(moved + '[storage]\npath = "s.sqlite"\n').storage.path == tmp_path / "s.sqlite"


def test_variables_alone_can_give_a_configuration(written: Written) -> None:
    no_settings = dict.fromkeys(("KCTL_CONFIG", "KCTL_CACHE_DIR", "KCTL_MAVEN_REPOSITORY", "KCTL_DEBUG"), "1")
    config = written(
        "",
        {
            "KCTL_KAFKA_BOOTSTRAP_SERVERS": "a:1,b:2",
            "KCTL_KAFKA_GROUP": "g",
            "KCTL_KAFKA_TOPICS": "orders, payments",
            "KCTL_SPARK_CONF": "spark.a=1,spark.b=x=y",
            "KCTL_KAFKA_STATIC_MEMBERSHIP": "TRUE",
            "KCTL_COLLECT_INTERVAL_SECONDS": "2",
            **no_settings,
        },
    )

    assert (config.kafka.bootstrap_servers, config.kafka.topics) == ("a:1,b:2", ("orders", "payments"))
    assert config.spark.conf == {"spark.a": "1", "spark.b": "x=y"}
    assert config.kafka.static_membership is True
    assert config.collect.interval_seconds == 2.0


@pytest.mark.shows("all mistakes of a configuration are reported at once, an unknown key with the nearest one")
def test_all_mistakes_are_reported_at_once_each_on_a_line(written: Written, tmp_path: Path) -> None:
    text = """
        [kafka]
        grup = "g"
        topics = ["or/ders"]
        heartbeat_interval_seconds = 10
        [worker]
        count = 2
        [sinkers]
        count = 1
        handler = "no colon"
        [contexts.prod]
        bootstrap_servers = "one"
        [clusters.main]
        """
    with pytest.raises(ConfigError) as caught:
        written(text, {"KCTL_HTTP_PORT": "-1", "KCTL_LOG_LEVL": "INFO"}, {"log.level": "loud"})

    lines = str(caught.value).replace(f"{tmp_path}/kctl.toml", "FILE").splitlines()
    assert lines == [
        "FILE: there is no key `grup` in [kafka]; the nearest is `group`",
        f'FILE: kafka.topics is ["or/ders"], {TOPIC_NAMES}',
        "FILE: there is no section [worker]; the nearest is `workers`",
        'FILE: sinkers.handler is "no colon", but it takes `package.module:function`',
        'FILE: contexts.prod.bootstrap_servers is "one", but it takes `host:port`, several separated by commas',
        "FILE: clusters.main.bootstrap_servers is missing: set `bootstrap_servers` in [clusters.main]",
        'KCTL_HTTP_PORT: http.port is "-1", but it takes a whole number from 0 to 65535',
        "the variable KCTL_LOG_LEVL is not a setting; the nearest is `KCTL_LOG_LEVEL`",
        'the command line: log.level is "loud", but it takes "DEBUG" or "INFO" or "WARNING" or "ERROR"',
        "FILE: kafka.bootstrap_servers is missing: set `bootstrap_servers` in [kafka], or KCTL_KAFKA_BOOTSTRAP_SERVERS",
        "FILE: kafka.heartbeat_interval_seconds (10) must be less than kafka.session_timeout_seconds (10)",
    ]

    with pytest.raises(ConfigError, match=r"^there is no setting `workers.cuont`; the nearest is `workers.count`$"):
        written(KAFKA, {}, {"workers.cuont": "2"})

    with pytest.raises(ConfigError) as long:
        written(KAFKA, {"KCTL_HTTP_PORT": "9" * 5000})
    assert len(str(long.value)) < 200


UNUSABLE = (
    ("count = 1", "there is no key `count` in [kafka]; it belongs to [workers] or [sinkers]"),
    ("[log]\nxyzzy = 1", "there is no key `xyzzy` in [log]; its keys are level"),
    ("[workers]\ncount = -1", "workers.count is -1, but it takes a whole number from 0 to 1000"),
    ("[collect]\ntimeout_seconds = nan", "collect.timeout_seconds is NaN, but it takes a number from 0.05 to 600"),
    ('[workers]\ntransform = "no colon"', 'workers.transform is "no colon", but it takes `module:function`'),
    (
        "[workers]\nrevoke_timeout_seconds = 60",
        "workers.revoke_timeout_seconds (60) must be less than kafka.max_poll_interval_seconds (60): "
        "otherwise the worker would count as hung while its batch ends",
    ),
    (
        "[workers]\nbackoff_min_seconds = 61",
        "workers.backoff_min_seconds (61) must not be more than workers.backoff_max_seconds (60)",
    ),
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[kafak]\ngroup = "a"', "there is no section [kafak]; the nearest is `kafka`"),
        ("kafka = 1", "`kafka` is a section: write [kafka] and its keys below"),
        ("[kafka]\ngroup = \n", "line 2, column 9: Invalid value; a text needs quotes"),
        (
            "at = 1.2.3.4\n",
            "line 1, column 9: Expected newline or end of document after a statement; a text needs quotes",
        ),
        ("[kafka", "line 1: Expected ']' at the end of a table declaration"),
        (KAFKA.replace('["t"]', "[]"), f"kafka.topics is [], {TOPIC_NAMES}"),
        (KAFKA.replace('["t"]', '["t", "or ders"]'), f'kafka.topics has "or ders", {TOPIC_NAMES}'),
        *((KAFKA + more, message) for more, message in UNUSABLE),
    ],
)
def test_unusable_values_name_what_is_allowed(written: Written, tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        written(text)

    assert str(caught.value) == f"{tmp_path}/kctl.toml: {message}"
    assert caught.value.exit_code == 2


@pytest.mark.shows("a pipe, a device or a huge file as configuration is rejected with one sentence")
def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b'# caf\xe9\n[kafka]\ngroup = "g"\n')

    with pytest.raises(ConfigError, match=r"^there is no configuration file .*absent\.toml$"):
        load(tmp_path / "absent.toml", {})
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        load(latin, {})
    os.mkfifo(tmp_path / "fifo")
    for each in (tmp_path, tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(ConfigError, match="cannot be read: it is not a regular file"):
            load(each, {})
    latin.write_text("#" * 2_000_000)
    with pytest.raises(ConfigError, match="is not a configuration: it has more than 1048576 characters"):
        load(latin, {})


def test_a_cluster_besides_those_in_the_file_is_rejected_and_an_exporter_has_its_own_port(tmp_path: Path) -> None:
    path = tmp_path / "exporter.toml"
    path.write_text('[clusters.main]\nbootstrap_servers = "one:9092"\n')

    with pytest.raises(ConfigError, match=r"has \[clusters\.main\], and -b names a cluster too: remove one of them"):
        load_exporter(path, {}, None, "two:9092")

    path.write_text("[http]\nport = 1\n")
    loaded = load_exporter(path, {}, None, "two:9092")
    assert (loaded.clusters["default"].bootstrap_servers, loaded.http.port) == ("two:9092", 1)

    port = load_exporter(None, {}, None, "one:9092").http.port

    assert (port, HttpSection().port, URL) == (9751, 9750, f"http://127.0.0.1:{port}")


CLUSTERS = '[clusters.a]\nbootstrap_servers = "one:9092"\n[clusters.b]\nbootstrap_servers = "two:9092"\n'


def checkpoint(name: str, **settings: str) -> str:
    lines = [f'{key} = "{value}"' for key, value in {"uri": f"/srv/{name}", **settings}.items()]
    return "\n".join([f"[checkpoints.{name}]", *lines, ""])


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("hdfs://name/job", "kctl does not read HDFS: copy the checkpoint"),
        ("gs://bucket/job", "gs:// is not tested"),
        ("abfs://container@account/job", "abfs:// is not tested"),
        ("s3://bucket", "write it as s3://BUCKET/PREFIX"),
        ("s3n://bucket/job", "write it as s3://BUCKET/PREFIX"),
        ("job", "it takes a path that begins with `/`"),
        ("file://job", "it takes a path that begins with `/`"),
    ],
)
def test_only_a_place_that_kctl_does_not_read_is_a_mistake_of_the_file(tmp_path: Path, uri: str, words: str) -> None:
    path = tmp_path / "kctl.toml"
    for text, read in ((CLUSTERS, load_exporter), (KAFKA, load)):
        path.write_text(text + checkpoint("x", uri=uri, cluster="a"))

        with pytest.raises(ConfigError, match=re.escape(words)):
            read(path, {})
    for known in ("/srv/x", "file:///srv/x", "s3://bucket/x", "s3a://bucket/x/y"):
        path.write_text(CLUSTERS + checkpoint("x", uri=known, cluster="a"))
        assert load_exporter(path, {}).checkpoints["x"].uri == known


def test_checkpoints_of_a_cluster_are_not_shown_as_one_group_or_as_the_fleets_own(tmp_path: Path) -> None:
    path = tmp_path / "kctl.toml"
    path.write_text(CLUSTERS + checkpoint("x", group="g", cluster="a") + checkpoint("g", cluster="a"))

    with pytest.raises(ConfigError, match=r"checkpoints\.g would be shown as group g, as x is"):
        load_exporter(path, {})

    path.write_text(CLUSTERS + checkpoint("x", group="g", cluster="a") + checkpoint("g", cluster="b"))
    assert load_exporter(path, {}).checkpoints.keys() == {"x", "g"}

    path.write_text(KAFKA + checkpoint("g") + checkpoint("x", cluster="b"))

    with pytest.raises(ConfigError) as refused:
        load(path, {})

    assert "checkpoints.g would be shown as group g, as kafka.group is" in str(refused.value)
    assert "checkpoints.x.cluster is `b`: it takes the name of a cluster: default" in str(refused.value)
    path.write_text(KAFKA + checkpoint("x", cluster="default"))
    assert load(path, {}).checkpoints.keys() == {"x"}


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
        (f"{TABLE}partition_by = ['country']", "country, but without workers.transform the columns are"),
        (f"{DIRECTLY}{SINKER}", 'storage.mode is "directly" and sinkers.count is 1'),
        (f'{DIRECTLY}[sinkers]\nhandler = "m:f"\n{CLUSTER}', "executors on other machines cannot write"),
        ('[sinkers]\nhandler = "m.f"', "sinkers.handler"),
        (CLUSTER, "executors on other machines cannot write to a file of this machine"),
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
