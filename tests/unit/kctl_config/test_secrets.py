from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from kctl.config.load import load
from kctl.config.sections import SparkSection, StorageSection
from kctl.config.storage import storage_settings
from kctl.config.values import shown
from kctl.errors import ConfigError
from kctl.kafka.client.access import of_context, of_fleet
from kctl.master.launch import engine_settings, worker_settings
from kctl.schemas import decoder, formats
from kctl.secrets import cluster_secret
from kctl_agent.schemas.formats import Formats, RegistrySettings
from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.redis.client import connect, where
from tests.configurations import KAFKA, loaded


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("", {"namespace": "g", "password_file": ""}),
        ('namespace = "mine"\npassword_file = "secret"', {"namespace": "mine", "password_file": "{folder}/secret"}),
        ('mode = "lake"\nuri = "s3://bucket/t"\ncredentials_file = "keys"', {"credentials_file": "{folder}/keys"}),
    ],
)
def test_files_are_found_next_to_the_configuration(tmp_path: Path, text: str, made: dict[str, str]) -> None:
    found = storage_settings(loaded(tmp_path, f"{KAFKA}[storage]\n{text}"))

    assert {name: found[name] for name in made} == {
        name: value.replace("{folder}", str(tmp_path)) for name, value in made.items()
    }


@pytest.mark.shows("a password in a URL is never shown")
@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("redis://user:hunter2@host:1/0", "redis://user:***@host:1/0"),
        ("rediss://:p%40:x@host", "rediss://:***@host"),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock?db=1"),
        ("unix://user:hunter2@/run/redis.sock", "unix://user:***@/run/redis.sock"),
        ("redis://user:hun@ter2@host:1/0", "redis://user:***@host:1/0"),
        ("redis://user:hun/ter2@host:1/0", "redis://user:***@host:1/0"),
        ("redis://user:hun?ter2@host:1/0", "redis://user:***@host:1/0"),
        ("redis://host:1/0?password=hun@ter2&db=1", "redis://host:1/0?password=***&db=1"),
        ("unix:///redis.sock?db=1&username=u&password=hunter2", "unix:///redis.sock?db=1&username=u&password=***"),
    ],
)
def test_a_password_in_a_url_is_not_shown(url: str, seen: str) -> None:
    (setting,) = [each for each in fields(StorageSection) if each.name == "url"]

    assert shown(setting, url) == seen


@pytest.mark.parametrize(
    ("name", "value", "seen"),
    [
        ("spark.hadoop.fs.s3a.secret.key", "hunter2", "***"),
        ("spark.hadoop.fs.azure.account.key.store.dfs.core.windows.net", "hunter2", "***"),
        ("spark.authenticate.secret", "hunter2", "***"),
        ("spark.driver.extraJavaOptions", "-Xss4m -Djavax.net.ssl.trustStorePassword=hunter2", "***"),
        ("spark.jars.repositories", "https://me:hunter2@host.example/maven", "https://me:***@host.example/maven"),
        ("spark.sql.shuffle.partitions", "4", "4"),
    ],
)
def test_what_spark_gets_is_not_shown_where_it_is_secret(name: str, value: str, seen: str) -> None:
    (setting,) = [each for each in fields(SparkSection) if each.name == "conf"]

    assert shown(setting, {name: value}) == {name: seen}


@pytest.mark.parametrize("url", ["redis://u:12/hunter2@host/0", "redis://u:hunter2/x@host/0"])
def test_a_url_that_cannot_be_read_is_rejected_without_a_part_of_its_password(url: str) -> None:
    with pytest.raises(StorageUnusable, match=r"storage\.url cannot be read") as refused:
        where(url)

    assert "hunter2" not in str(refused.value)


URL = "http://registry:8081/apis/ccompat/v7"
AVRO = f'{KAFKA}value_format = "avro"\n[schema_registry]\nurl = "{URL}"\n'


def test_processes_get_the_registry_with_absolute_paths_and_read_secrets_themselves(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("of the key\n")
    password.chmod(0o600)
    more = 'basic_auth_file = "basic"\ntls_ca_file = "ca.pem"\ntls_key_password_file = "password"\n'

    found, plain = Formats.of(formats(loaded(tmp_path, AVRO + more))), loaded(tmp_path)

    files: dict[str, Any] = {"basic_auth_file": str(tmp_path / "basic"), "ca_file": str(tmp_path / "ca.pem")}
    assert found == Formats("bytes", "avro", RegistrySettings(URL, **files, key_password="of the key"))
    assert repr(found.registry) == f"RegistrySettings({URL})"
    assert (decoder(plain), Formats.of(formats(plain))) == (None, Formats())


TOML = """
[kafka]
bootstrap_servers = "localhost:9092"
group = "g"
topics = ["t"]
{kafka}
[spark]
master = "spark://localhost:7077"
{spark}
[storage]
mode = "redis"
"""
SASL = 'security_protocol = "SASL_SSL"\nsasl_username = "u"\n'
IN_KAFKA = [
    ("sasl_password_file", SASL),
    ("oauth_token_file", 'security_protocol = "SASL_SSL"\nsasl_mechanism = "OAUTHBEARER"\n'),
    ("tls_key_file", 'security_protocol = "SSL"\n'),
    ("tls_key_password_file", 'security_protocol = "SSL"\n'),
    ("tls_certificate_file", 'security_protocol = "SSL"\n'),
]


def secret(folder: Path, mode: int) -> None:
    (folder / "secret").write_text("hunter2\n")
    (folder / "secret").chmod(mode)


@pytest.mark.parametrize(("name", "more"), IN_KAFKA)
def test_a_file_for_kafka_that_all_users_can_open_is_rejected(tmp_path: Path, name: str, more: str) -> None:
    path = tmp_path / "kctl.toml"
    path.write_text(TOML.format(kafka=f'{more}{name} = "secret"', spark=""))
    context = tmp_path / "contexts.toml"
    context.write_text(f'[contexts.one]\nbootstrap_servers = "localhost:9092"\n{more}{name} = "secret"')
    secret(tmp_path, 0o600)
    of_fleet(load(path, {}))
    of_context(context, "one")

    secret(tmp_path, 0o644)

    with pytest.raises(ConfigError, match=rf"kafka\.{name} .*mode 0644.*chmod o="):
        of_fleet(load(path, {}))
    with pytest.raises(ConfigError, match=rf"contexts\.one\.{name} .*mode 0644.*chmod o="):
        of_context(context, "one")


@pytest.mark.shows("a Spark cluster without a secret is rejected unless it is allowed")
def test_a_spark_cluster_without_a_secret_is_rejected_unless_that_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "kctl.toml"
    path.write_text(TOML.format(kafka="", spark=""))

    with pytest.raises(
        ConfigError, match=r'spark\.master is "spark://localhost:7077", but .* set spark\.auth_secret_file'
    ):
        cluster_secret(load(path, {}), {})

    assert cluster_secret(load(path, {}), {"KCTL_CLUSTER_SECRET": "hunter2"}) == "hunter2"
    for choice in ("true", "false"):
        path.write_text(TOML.format(kafka="", spark=f'[spark.conf]\n"spark.authenticate" = "{choice}"'))
        assert cluster_secret(load(path, {}), {}) is None
    for master in ("local[2]", "yarn", "k8s://https://host"):
        path.write_text(TOML.format(kafka="", spark="").replace("spark://localhost:7077", master))
        assert cluster_secret(load(path, {}), {}) is None


def test_the_secret_of_a_spark_cluster_comes_from_its_file_or_else_from_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "kctl.toml"
    path.write_text(TOML.format(kafka="", spark=""))
    assert cluster_secret(load(path, {}), {"KCTL_CLUSTER_SECRET": "of the environment"}) == "of the environment"

    path.write_text(TOML.format(kafka="", spark='auth_secret_file = "secret"'))
    secret(tmp_path, 0o600)
    assert cluster_secret(load(path, {}), {"KCTL_CLUSTER_SECRET": "of the environment"}) == "hunter2"
    assert engine_settings(load(path, {}), [])["spark"]["auth_secret"] == "hunter2"
    own = load(path, {"KCTL_WORKERS_ENGINE": "own"})
    assert worker_settings(own, "worker-0", [])["spark"]["auth_secret"] == "hunter2"

    secret(tmp_path, 0o644)
    with pytest.raises(ConfigError, match=r"spark\.auth_secret_file cannot be read: .*mode 0644.*chmod o="):
        cluster_secret(load(path, {}), {})


def test_a_password_of_redis_that_is_no_text_is_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.touch(0o600)
    file.write_bytes(b"\xff\xfe")

    with pytest.raises(StorageUnusable, match=r"it is not text$"):
        connect("redis://127.0.0.1:1/0", file)
