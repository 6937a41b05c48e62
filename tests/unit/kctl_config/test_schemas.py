from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kctl.errors import ConfigError
from kctl.schemas import decoder, formats
from kctl_agent.schemas.formats import Formats, RegistrySettings
from tests.configurations import KAFKA, loaded

URL = "http://registry:8081/apis/ccompat/v7"
AVRO = f'{KAFKA}value_format = "avro"\n[schema_registry]\nurl = "{URL}"\n'


def test_without_formats_nothing_is_decoded(tmp_path: Path) -> None:
    config = loaded(tmp_path)

    assert decoder(config) is None
    assert Formats.of(formats(config)) == Formats()


def test_processes_get_the_registry_with_absolute_paths_and_read_secrets_themselves(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("of the key\n")
    password.chmod(0o600)
    more = 'basic_auth_file = "basic"\ntls_ca_file = "ca.pem"\ntls_key_password_file = "password"\n'

    found = Formats.of(formats(loaded(tmp_path, AVRO + more)))

    files: dict[str, Any] = {"basic_auth_file": str(tmp_path / "basic"), "ca_file": str(tmp_path / "ca.pem")}
    assert found == Formats("bytes", "avro", RegistrySettings(URL, **files, key_password="of the key"))
    assert repr(found.registry) == f"RegistrySettings({URL})"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'{KAFKA}value_format = "avro"\n', 'kafka.value_format is "avro" and schema_registry.url is empty'),
        (f'{KAFKA}key_format = "avro"\n', 'kafka.key_format is "avro" and schema_registry.url is empty'),
        (f'{AVRO}token_file = "t"\nbasic_auth_file = "b"\n', "are both set: leave one out"),
        (f'{KAFKA}value_format = "protobuf"\n', 'kafka.value_format is "protobuf", but it takes'),
        (AVRO.replace("http://", "http://user:secret@"), "schema_registry.url"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, text)

    assert message in str(raised.value)
    assert "user:secret" not in str(raised.value)


def test_a_table_may_be_partitioned_by_a_field_of_the_record(tmp_path: Path) -> None:
    lake = '[storage]\nmode = "lake"\nuri = "file:///srv/t"\npartition_by = ["country"]\n'

    loaded(tmp_path, AVRO + lake)
    with pytest.raises(ConfigError, match="partition_by names country"):
        loaded(tmp_path, KAFKA + lake)
