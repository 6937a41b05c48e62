from __future__ import annotations

import re
from pathlib import Path

import pytest

from kctl.cli.groups.api_client import URL
from kctl.config.load import load, load_exporter
from kctl.config.sections import HttpSection
from kctl.errors import ConfigError
from tests.configurations import KAFKA


def test_a_cluster_besides_those_in_the_file_is_rejected_and_an_exporter_has_its_own_port(tmp_path: Path) -> None:
    path = tmp_path / "exporter.toml"
    path.write_text('[clusters.main]\nbootstrap_servers = "one:9092"\n')

    with pytest.raises(ConfigError, match=r"has \[clusters\.main\], and -b names a cluster too: leave one of the two"):
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
        ("gs://bucket/job", "gs:// has not been tried"),
        ("abfs://container@account/job", "abfs:// has not been tried"),
        ("s3://bucket", "write it as s3://BUCKET/PREFIX"),
        ("s3://bucket/", "write it as s3://BUCKET/PREFIX"),
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
