from __future__ import annotations

from pathlib import Path

import pytest

from kctl.config.load import load
from kctl.errors import ConfigError
from kctl.kafka.client.access import of_context, of_fleet
from kctl.master.launch import engine_settings, worker_settings
from kctl.secrets import cluster_secret
from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.redis.client import connect

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
