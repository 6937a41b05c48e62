import os
import re
import stat
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kctl_agent.process.bootstrap import BootstrapError
from kctl_agent.spark.class_archive import archive_path, fingerprint, is_private, java_options, recording
from kctl_agent.spark.conf import (
    CAPACITY,
    KEPT_CONSUMERS,
    MEMORY_EXITS,
    configuration,
    is_local,
    limit_kept_consumers,
    memory_exits,
    properties_file,
)
from tests.worker_settings import driver


def of(folder: Path, **spark: Any) -> dict[str, str]:
    return configuration(driver(folder, **spark))


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[2]", True), ("local[*]", True), ("local[2,3]", True), ("local-cluster[1,1,512]", False),
     ("spark://localhost:7077", False), ("yarn", False), ("k8s://https://host", False)],
)  # fmt: skip
def test_masters_with_a_drawn_or_given_secret_authenticate(tmp_path: Path, master: str, local: bool) -> None:
    conf, not_wanted = of(tmp_path, master=master), {"spark.authenticate": "false", "spark.redaction.regex": "x"}
    with_secret = of(tmp_path, master=master, auth_secret="hunter2")

    assert is_local(master) is local
    assert conf.get("spark.authenticate") == (None if master.startswith(("spark://", "local-")) else "true")
    assert "spark.authenticate.secret" not in conf
    assert with_secret["spark.authenticate"] == with_secret["spark.network.crypto.enabled"] == "true"
    assert with_secret["spark.authenticate.secret"] == "hunter2"
    assert of(tmp_path, master=master, conf=not_wanted).items() >= not_wanted.items(), "what the user sets wins"
    given = driver(tmp_path, auth_secret="hunter2", conf={"spark.authenticate.secret": "hunter3"})
    assert "hunter" not in repr(given)


def test_once_a_heap_was_too_small_no_fetched_records_are_kept_for_a_day_or_until_it_changes(tmp_path: Path) -> None:
    age = "spark.kafka.consumer.fetchedData.cache.timeout"
    small, large = (driver(tmp_path, driver_memory=heap) for heap in ("512m", "1g"))
    assert (configuration(small)[MEMORY_EXITS], configuration(small)[age]) == ("0", "60000ms")

    memory_exits(small).parent.mkdir(parents=True)
    memory_exits(small).write_bytes(b"..")

    assert (configuration(small)[MEMORY_EXITS], configuration(small)[age]) == ("2", "0ms")
    assert (configuration(large)[MEMORY_EXITS], configuration(large)[age]) == ("0", "60000ms")
    os.utime(memory_exits(small), (time.time() - 86_000,) * 2)
    assert configuration(small)[MEMORY_EXITS] == "2"
    os.utime(memory_exits(small), (time.time() - 87_000,) * 2)
    assert configuration(small)[MEMORY_EXITS] == "0", "after a day without one"
    assert not memory_exits(small).exists(), "the next one is the first"


def test_a_driver_without_a_ui_remembers_few_jobs_that_have_ended(tmp_path: Path) -> None:
    assert of(tmp_path)["spark.sql.ui.retainedExecutions"] == "20"
    assert "spark.sql.ui.retainedExecutions" not in of(tmp_path, conf={"spark.ui.enabled": "true"})
    assert of(tmp_path, conf={"spark.ui.retainedJobs": "7"})["spark.ui.retainedJobs"] == "7"


def test_properties_are_in_a_file_for_this_user_alone_and_only_until_they_are_read(tmp_path: Path) -> None:
    conf = {"spark.a.secret": "p=w: #\\ \n\u00fc\U0001f600!", "spark.b": ""}
    with properties_file(conf, tmp_path) as path:
        mode, text = stat.S_IMODE(path.stat().st_mode), path.read_text("ascii")

    assert mode == 0o600
    assert text.splitlines() == [
        r"spark.a.secret=p\u003dw\u003a\u0020\u0023\u005c\u0020\u000a\u00fc\ud83d\ude00\u0021",
        "spark.b=",
    ]
    assert list(tmp_path.iterdir()) == []


def test_the_keys_of_an_object_store_are_properties_of_its_bucket_alone_and_shown_nowhere(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("[default]\naws_access_key_id = id\naws_secret_access_key = hunter2\n")
    keys.chmod(0o600)
    storage = {"uri": "s3://lake/orders", "endpoint": "http://127.0.0.1:1", "region": "", "credentials_file": str(keys)}
    settings = driver(tmp_path, storage=storage)

    found = configuration(settings)

    of_bucket = {name.removeprefix("spark.hadoop.fs.s3a.bucket.lake."): text for name, text in found.items()}
    assert (of_bucket["secret.key"], of_bucket["endpoint"]) == ("hunter2", "http://127.0.0.1:1")
    assert of_bucket["path.style.access"] == "true"
    assert re.search(found["spark.redaction.regex"], "fs.s3a.bucket.lake.secret.key")
    assert "hunter2" not in repr(settings)
    assert not [name for name in of(tmp_path) if "s3a" in name]
    keys.unlink()
    with pytest.raises(BootstrapError, match=r"keys \(storage.credentials_file\) cannot be read: No such file"):
        driver(tmp_path, storage=storage)


MB = 1 << 20


class Conf(dict[str, str]):
    set = dict.__setitem__


def session(
    heap: int, capacity: str = str(KEPT_CONSUMERS), master: str = "local[2]", exits: int = 0
) -> tuple[Any, Conf]:
    conf = Conf({CAPACITY: capacity, MEMORY_EXITS: str(exits)})
    runtime = SimpleNamespace(maxMemory=lambda: heap)
    env = SimpleNamespace(get=lambda: SimpleNamespace(conf=lambda: conf))
    jvm = SimpleNamespace(
        org=SimpleNamespace(apache=SimpleNamespace(spark=SimpleNamespace(SparkEnv=env))),
        java=SimpleNamespace(lang=SimpleNamespace(Runtime=SimpleNamespace(getRuntime=lambda: runtime))),
    )
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, _jvm=jvm)), conf


@pytest.mark.parametrize(
    ("topics", "heap", "kept"),
    [([8], 512, 1000), ([400], 512, 1000), ([600, 400], 512, 589), ([1000], 512, 375), ([1000], 2048, 1000),
     ([10_000], 512, 64), ([400] * 10, 2048, 3303), ([400] * 5, 2048, 2000)],
)  # fmt: skip
def test_as_many_are_kept_as_half_the_heap_holds(topics: list[int], heap: int, kept: int) -> None:
    spark, conf = session(heap * MB)

    limit_kept_consumers(spark, topics)

    assert conf[CAPACITY] == str(kept)


@pytest.mark.shows("after each out-of-memory exit a JVM keeps a quarter of the consumers, at least one")
def test_after_each_exit_for_lack_of_memory_a_quarter_of_the_consumers_is_kept() -> None:
    kept = []
    for exits in range(6):
        spark, conf = session(512 * MB, exits=exits)
        limit_kept_consumers(spark, [400])
        kept.append(int(conf[CAPACITY]))

    assert kept == [1000, 59, 15, 3, 1, 1]


def test_fewer_consumers_are_named_once_with_the_heap_that_all_need_unless_set_by_the_user_or_of_a_cluster() -> None:
    spark, _ = session(512 * MB)
    assert limit_kept_consumers(spark, [1000]) == (
        "375 of 1,000 consumers are kept between batches, and the others are reopened for each: to keep all, the JVM "
        "needs a heap of 1,364 MB and has 512 (engine.heap, spark.driver_memory)"
    )
    assert limit_kept_consumers(spark, [1000]) is None

    for spark, conf in (session(512 * MB, "2000"), session(512 * MB, master="spark://host:7077")):
        before = dict(conf)

        assert limit_kept_consumers(spark, [1000]) is None
        assert conf == before


def test_only_the_private_archive_of_this_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "with a space"))
    assert java_options("-Xss4m") == "", "none was recorded"
    archive = archive_path()
    archive.parent.mkdir(parents=True)
    archive.touch(mode=0o600)
    (tmp_path / "link").symlink_to(archive)

    assert archive.is_relative_to(tmp_path / "with a space")
    assert java_options("-Xss4m").startswith(f'"-XX:SharedArchiveFile={archive}" ')
    assert not is_private(tmp_path / "link")
    for own in ("-XX:SharedArchiveFile=/srv/own.jsa", "-Xss4m -Xshare:off"):
        assert java_options(own) == "", "a setting that names an archive or none"
    with monkeypatch.context() as patched:
        patched.setenv("JAVA_HOME", str(tmp_path / "jdk"))
        assert java_options("") == "", "without a Java"
        (tmp_path / "jdk" / "bin").mkdir(parents=True)
        (tmp_path / "jdk" / "bin" / "java").write_text("another Java")
        assert java_options("") == ""
    archive.chmod(0o620)
    assert java_options("") == "", "others can write it"


def test_a_jar_that_has_changed_is_another_one(tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"1")
    before = fingerprint([jar])

    os.utime(jar, ns=(0, jar.stat().st_mtime_ns + 1))

    assert fingerprint([jar]) != before


def test_a_recorded_archive_stands_in_its_place_and_the_oldest_of_its_kind_go(tmp_path: Path) -> None:
    for number in range(3):
        old = tmp_path / f"spark-{number}.jsa"
        old.touch()
        os.utime(old, (number, number))
    (tmp_path / "broker-0.jsa").touch()

    with recording(tmp_path / "spark-new.jsa", kept=2) as fresh:
        fresh.write_bytes(b"classes")
        (fresh.parent / "scratch").mkdir()

    assert (tmp_path / "spark-new.jsa").read_bytes() == b"classes"
    assert {each.name for each in tmp_path.iterdir()} == {"spark-new.jsa", "spark-2.jsa", "broker-0.jsa"}


def test_where_the_jvm_writes_no_archive_the_one_before_stays(tmp_path: Path) -> None:
    path = tmp_path / "spark-1.jsa"
    path.write_bytes(b"before")

    with pytest.raises(RuntimeError, match="wrote no class archive"), recording(path, kept=1):
        pass

    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"before"]
