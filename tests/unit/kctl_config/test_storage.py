from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from kctl.config.sections import SparkSection, StorageSection
from kctl.config.storage import storage_settings
from kctl.config.values import shown
from kctl.errors import ConfigError
from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.redis.client import where
from tests.configurations import loaded

KAFKA = '[kafka]\nbootstrap_servers = "one:9092"\ngroup = "readers"\ntopics = ["orders"]\n[storage]\n'


def settings(folder: Path, text: str) -> dict[str, Any]:
    return storage_settings(loaded(folder, KAFKA + text))


def test_the_namespace_is_that_of_the_group_unless_it_is_named(tmp_path: Path) -> None:
    assert settings(tmp_path, "")["namespace"] == "readers"
    assert settings(tmp_path, 'namespace = "mine"')["namespace"] == "mine"


def test_a_password_file_is_found_beside_the_configuration(tmp_path: Path) -> None:
    assert settings(tmp_path, "")["password_file"] == ""
    assert settings(tmp_path, 'password_file = "secret"')["password_file"] == str(tmp_path / "secret")


def test_a_table_in_an_object_store_has_its_keys_in_a_file_beside_the_configuration(tmp_path: Path) -> None:
    found = settings(tmp_path, 'mode = "lake"\nuri = "s3://bucket/a/orders"\ncredentials_file = "keys"')

    assert (found["uri"], found["credentials_file"]) == ("s3://bucket/a/orders", str(tmp_path / "keys"))


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
        (
            "unix:///run/redis.sock?db=1&username=u&password=hunter2",
            "unix:///run/redis.sock?db=1&username=u&password=***",
        ),
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
        (
            "spark.jars.repositories",
            "https://me:hunter2@repository.example/maven",
            "https://me:***@repository.example/maven",
        ),
        ("spark.sql.shuffle.partitions", "4", "4"),
    ],
)
def test_what_spark_gets_is_not_shown_where_it_is_secret(name: str, value: str, seen: str) -> None:
    (setting,) = [each for each in fields(SparkSection) if each.name == "conf"]

    assert shown(setting, {name: value}) == {name: seen}


def test_properties_of_a_wrong_kind_are_rejected_without_being_shown(tmp_path: Path) -> None:

    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, KAFKA + '[spark]\nconf = ["spark.authenticate.secret=hunter2"]\n')

    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("url", ["redis://u:12/hunter2@host/0", "redis://u:hunter2/x@host/0"])
def test_a_url_that_cannot_be_read_is_rejected_without_a_part_of_its_password(url: str) -> None:
    with pytest.raises(StorageUnusable, match=r"storage\.url cannot be read") as refused:
        where(url)

    assert "hunter2" not in str(refused.value)
