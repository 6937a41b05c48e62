from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from kctl.config.sections import SparkSection, StorageSection
from kctl.config.storage import storage_settings
from kctl.config.values import shown
from kctl.schemas import decoder, formats
from kctl_agent.schemas.formats import Formats, RegistrySettings
from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.redis.client import where
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
