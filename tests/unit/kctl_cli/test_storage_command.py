import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kctl_agent.message import Message
from kctl_agent.storage import numbered_dead_letters
from kctl_agent.storage.chunk import Binding, StoredOffset
from kctl_agent.storage.claim import DeadLetter
from kctl_agent.storage.file import FileStorage
from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable
from kctl_agent.storage.selection import Selection
from tests.command_lines import Kctl
from tests.conformance.given import chunk, put
from tests.lake_tables import begun, opened, written

ODD = Message("t", 1, 5, b"\xff\x00", "käse".encode(), 1_700_000_000_000, (("h", b"1"), ("n", None)), 3)
VALUE_ERROR = "the handler shop:handle raised ValueError: order on t-2 offset 7 (1 message)"
TRACE = """Traceback (most recent call last):
  File "shop.py", line 3, in handle
    raise ValueError(order)
ValueError: order"""


@pytest.fixture
def config(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = short_dir / "kctl.toml"
    path.write_text('[kafka]\nbootstrap_servers = "b:1"\ngroup = "g"\ntopics = ["t"]\n[storage]\nlimit = 1000\n')
    monkeypatch.setenv("KCTL_CONFIG", str(path))
    return path


@pytest.fixture
def storage(config: Path) -> Iterator[FileStorage]:
    """Partition 0 has 1 pending, 3 leased, 1 delayed and 1 dead message. Partition 1 has 1 dead message."""
    storage = FileStorage(config.parent / "data" / "storage.sqlite", block_messages=3)
    storage.prepare()
    storage.init_offsets([StoredOffset("t", 0, "A", 0)])
    put(storage, chunk(0, 10))
    (first,) = storage.claim("a", 3, 600.0)
    reason = "Traceback (most recent call last):\n  …\nKeyError: 1"
    storage.settle(first, [True, False, False], dead={1: reason, 2: reason})
    storage.remove_dead(Selection(offset_from=2, offset_to=2))
    (second,) = storage.claim("a", 3, 600.0)
    storage.settle(second, [True, True, False], retry_seconds=600.0)
    storage.claim("a", 3, 600.0)
    storage.dead_letter([ODD], "no such customer\nsecond line", "A")
    yield storage
    storage.close()


def add_dead_letter(storage: FileStorage, offset: int, sentence: str = VALUE_ERROR) -> None:
    storage.dead_letter([Message("t", 2, offset, None, b"v", 0)], f"{sentence}\n{TRACE}", "A")


@pytest.mark.shows("`kctl storage status`, `requeue`, `clear`, `dead`, `export` work with and without a running fleet")
def test_status_is_exported_by_topic_and_partition(kctl: Kctl, storage: FileStorage) -> None:
    ran = kctl("storage", "status")

    assert ran.code == 0
    lines = [line.split() for line in ran.out.splitlines()]
    assert lines[0] == [f"{storage.identity},", "limit", "1000"]
    assert lines[2] == ["topic", "partition", "pending", "processing", "delayed", "dead", "bytes", "oldest"]
    assert lines[3][:6] == ["t", "0", "1", "3", "1", "1"]
    assert lines[4][:6] == ["t", "1", "0", "0", "0", "1"]
    assert lines[5][:6] == ["(all)", "-", "1", "3", "1", "2"]


def test_dead_letters_are_listed_with_a_line_of_their_error_or_all_of_it(kctl: Kctl, storage: FileStorage) -> None:
    listed, cut = kctl("storage", "dead", "list"), kctl("storage", "dead", "list", "--limit", "1")

    rows = [line.split(maxsplit=6) for line in listed.out.splitlines()[1:]]
    assert [(row[1], row[2], row[3], row[4], row[6]) for row in rows] == [
        ("t", "0", "1", "1", "KeyError: 1"),
        ("t", "1", "5", "3", "no such customer"),
    ]
    assert (len(cut.out.splitlines()), "more than 1" in cut.err) == (2, True)
    assert kctl("storage", "dead", "list", "--limit", "1", "-o", "json").document["more"] is True

    error = f"the handler shop:handle raised ValueError: {'no such customer ' * 20}on t-2 offset 7 (1 message)"
    add_dead_letter(storage, 7, error)

    table = kctl("storage", "dead", "list", "--partition", "2").out
    wide = kctl("storage", "dead", "list", "--partition", "2", "-o", "wide").out

    assert table.splitlines()[1].endswith("…")
    assert wide.splitlines()[1].endswith(error)
    assert len(wide.splitlines()) == 2


def test_dead_letters_are_counted_by_error_whichever_message_it_was(kctl: Kctl, storage: FileStorage) -> None:
    for offset in range(5):
        add_dead_letter(storage, offset, VALUE_ERROR.replace("order", f"order {offset * 91}"))
    of_no_list = "the handler shop:handle returned None instead of a list of bools"
    add_dead_letter(storage, 8, f"{of_no_list} on t-2 offset 8 (1 message)")

    rows = kctl("storage", "dead", "groups", "-o", "json").rows
    table = kctl("storage", "dead", "groups").out.splitlines()
    cut = kctl("storage", "dead", "groups", "--limit", "1")

    assert [(row["count"], row["error_class"], row["line"]) for row in rows] == [
        (5, "ValueError", "shop.py:3"),
        (1, "KeyError", ""),
        (1, "no such customer", ""),
        (1, of_no_list, "shop.py:3"),
    ]
    newest = next(x.id for x in storage.dead() if x.block.partition == 2 and x.offset == 4)
    assert (rows[0]["newest"], rows[0]["hours"][-1]) == (newest, 5)
    assert table[0].split() == ["count", "last-hour", "last-day", "last-died", "newest", "line", "error-class"]
    assert table[1].split()[:3] == ["5", "5", "5"]
    assert (len(cut.out.splitlines()), "more than 1" in cut.err) == (2, True)


def test_dead_letters_are_chosen_by_every_filter(kctl: Kctl, storage: FileStorage) -> None:
    add_dead_letter(storage, 7)

    def found(*options: str) -> list[int]:
        lines = kctl("storage", "dead", "export", *options).out.splitlines()
        return [json.loads(line)["offset"] for line in lines]

    assert sorted(found()) == [1, 5, 7]
    assert found("--error-class", "ValueError", "--line", "shop.py:3") == [7]
    assert found("--text", "käse", "--tries-from", "3") == [5]
    assert found("--traceback", "in handle", "--died-from", "2026-01-01") == [7]
    assert found("--died-to", "2026-01-01T00:00:00Z") == []
    ids = [each.id for each in storage.dead(Selection(offset_from=5))]
    assert found("--id", ids[0], "--id", ids[1]) == [5, 7]
    wrong = kctl("storage", "dead", "list", "--died-from", "yesterday")
    assert (wrong.code, "'yesterday' is not a time" in wrong.err) == (2, True)
    assert found("--line", "") == [1, 5]
    for flag in ("--text", "--traceback", "--key", "--error-class", "--topic", "--id"):
        empty = kctl("storage", "dead", "delete", "--yes", flag, "")
        assert (empty.code, f"{flag} must not be empty" in empty.err) == (2, True)
    assert "does not accept --text" in kctl("storage", "clear", "--yes", "--text", "x").err


def test_another_count_than_is_expected_changes_nothing(kctl: Kctl, storage: FileStorage) -> None:
    for words in ("requeue", "delete -y"):
        refused = kctl("storage", "dead", *words.split(), "--partition", "1", "--expect", "2")
        assert refused.code == 1
        assert "1 dead letters match, but 2 were expected" in refused.err
    assert storage.count_dead() == 2

    assert kctl("storage", "dead", "requeue", "--partition", "1", "--expect", "1").out == "1 dead letter requeued\n"
    assert kctl("storage", "dead", "delete", "--expect", "1", "-y").out == "1 dead letter removed\n"
    assert kctl("storage", "dead", "delete").out == "no dead letters\n"


@pytest.mark.usefixtures("storage")
def test_what_was_confirmed_is_deleted(kctl: Kctl, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kctl.cli.storage.dead.confirm", lambda _: config.write_text("[storage"))

    assert kctl("storage", "dead", "delete").out == "2 dead letters removed\n"


def test_a_change_that_is_stopped_shows_what_was_done(
    kctl: Kctl, storage: FileStorage, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbered_dead_letters, "PAGE", 1)
    remove = FileStorage._remove_dead

    def interrupted(own: FileStorage, dead_letters: list[DeadLetter]) -> int:
        if own.count_dead() == 1:
            raise KeyboardInterrupt
        return remove(own, dead_letters)

    monkeypatch.setattr(FileStorage, "_remove_dead", interrupted)

    ran = kctl("storage", "dead", "delete", "-y")

    assert ran.code == 130
    assert "stopped: 1 dead letter removed" in ran.err
    assert storage.count_dead() == 1
    last = json.loads((config.parent / "logs" / "operations.jsonl").read_text().splitlines()[-1])
    assert (last["state"], last["text"]) == ("failed", "1 dead letter removed; stopped")


def test_a_dead_letter_is_shown_and_exported_with_payload_and_traceback(kctl: Kctl, storage: FileStorage) -> None:
    add_dead_letter(storage, 7)
    ids = {each.offset: each.id for each in storage.dead()}

    odd, traced = kctl("storage", "dead", "show", ids[5]), kctl("storage", "dead", "show", ids[7])
    exported = [json.loads(line) for line in kctl("storage", "dead", "export", "--offset-from", "5").out.splitlines()]
    missing = kctl("storage", "dead", "show", "4711")

    assert odd.code == 0
    assert [text in odd.out for text in ("käse", "key_base64", "header h: 1")] == [True] * 3
    assert odd.out.endswith("no such customer\nsecond line\n")
    assert traced.out.endswith(f"on t-2 offset 7 (1 message)\n{TRACE}\n")
    assert [(each["error"], each["traceback"]) for each in exported] == [
        ("no such customer", "second line"),
        (VALUE_ERROR, TRACE),
    ]
    line = exported[0]
    assert (line["topic"], line["partition"], line["offset"], line["tries"]) == ("t", 1, 5, 3)
    assert (line["key_base64"], line["value"], line["timestamp"]) == ("/wA=", "käse", 1_700_000_000_000)
    assert line["headers"] == [{"key": "h", "value": "1"}, {"key": "n", "value": None}]
    assert line["damaged"] is False
    assert (missing.code, "there is no dead letter 4711" in missing.err) == (2, True)


def test_a_storage_that_does_not_exist_is_named_and_a_damaged_block_exported(kctl: Kctl, config: Path) -> None:
    missing = kctl("storage", "status")
    assert (missing.code, missing.out, (config.parent / "data").exists()) == (1, "", False)
    assert "does not exist: nothing has been put there yet, or it was removed" in missing.err

    storage = FileStorage(config.parent / "data" / "storage.sqlite")
    storage.prepare()
    storage.init_offsets([StoredOffset("t", 0, "A", 0)])
    put(storage, chunk(0, 4))
    with sqlite3.connect(storage.path) as db:
        db.execute("update block set body=x'00ff'")
    db.close()
    assert storage.claim("a", 10, 60.0) == []
    storage.close()

    line = kctl("storage", "dead", "export").document

    assert (line["damaged"], line["offset"], line["messages"], line["block_base64"]) == (True, 0, 4, "AP8=")
    (row,) = kctl("storage", "dead", "list", "-o", "json").rows
    assert row["damaged"] is True


def test_clearing_asks_and_leases_are_requeued_when_they_expire_or_by_age(kctl: Kctl, storage: FileStorage) -> None:
    assert kctl("storage", "requeue").out == "1 message requeued\n"
    asked = kctl("storage", "clear")
    assert storage.stats().pending == 2
    cleared = kctl("storage", "clear", "--yes")
    deleted = kctl("storage", "dead", "delete", "--partition", "1", "-y")

    assert (asked.code, "--yes" in asked.err) == (2, True)
    assert f"Remove 2 messages (waiting) of {storage.identity} for good?" in asked.err
    assert (cleared.out, deleted.out) == ("2 messages removed\n", "1 dead letter removed\n")
    stats = storage.stats()
    assert (stats.pending, stats.processing, stats.delayed, stats.dead) == (0, 3, 0, 1)
    for ran in (kctl("storage", "optimize"), kctl("storage", "vacuum")):
        assert (ran.code, 'storage.mode is "file"' in ran.err) == (2, True), "it has no files to look after"
    assert kctl("storage", "requeue", "--older-than", "3600").out == "0 messages requeued\n"
    assert kctl("storage", "requeue", "--older-than", "0").out == "3 messages requeued\n"
    assert (storage.stats().pending, storage.stats().processing) == (3, 0)


@pytest.fixture
def table(config: Path) -> Path:
    table = config.parent / "orders"
    config.write_text(config.read_text() + f'mode = "lake"\nuri = "{table.as_uri()}"\n')
    return table


@pytest.fixture
def ten_rows(table: Path) -> Path:
    lake = opened(table)
    lake.init_offsets([StoredOffset("t", 0, None, 0)])
    begun(lake, 0, 10).commit()
    return table


@pytest.fixture
def two_files(ten_rows: Path) -> Path:
    begun(opened(ten_rows), 10, 20).commit()
    return ten_rows


def test_a_table_has_rows_files_and_stored_offsets_of_the_group(kctl: Kctl, ten_rows: Path) -> None:
    document = kctl("storage", "status", "-o", "json").document
    refused = kctl("storage", "clear", "--yes")
    assert kctl("storage", "status").out.endswith("\n\nthe group g has stored nothing in it yet\n")
    assert (document["version"], document["rows"], document["files"]) == (2, 10, 1)
    assert (document["small_files"], document["target_file_bytes"]) == (1, 128 << 20)
    assert 0 <= document["last_commit_seconds"] < 60
    assert "pending" not in document
    assert (refused.code, 'storage.mode is "lake": rows go into a table' in refused.err) == (2, True)

    of_group = opened(ten_rows, Binding("g", "cluster/1"))
    of_group.init_offsets([StoredOffset("t", partition, None, 100 + partition) for partition in (0, 1)])
    DeltaTable(ten_rows).create_checkpoint()
    of_group.init_offsets([StoredOffset("t", 10, None, 7)])

    partitions = kctl("storage", "status", "-o", "json").document["partitions"]
    lines = [line.split() for line in kctl("storage", "status").out.splitlines()]

    expected = [("cluster/1", "t", partition, stored) for partition, stored in ((0, 100), (1, 101), (10, 7))]
    assert [tuple(each.values()) for each in partitions] == expected
    assert lines[2] == ["version", "rows", "files", "small-files", "bytes", "dead", "requeued", "last-commit"]
    assert lines[5:] == [[*partitions[0]], *([*map(str, each)] for each in expected)]


def test_small_files_are_compacted_and_old_ones_removed_but_by_no_dry_run(kctl: Kctl, two_files: Path) -> None:
    dry = kctl("storage", "optimize", "--dry-run")
    assert kctl("storage", "status", "-o", "json").document["files"] == 2
    done = kctl("storage", "optimize")
    again = kctl("storage", "optimize")

    assert (dry.code, dry.out.startswith("would compact 2 small files (")) == (0, True)
    assert (done.code, done.out.startswith("2 files ("), "became 1 file (" in done.out) == (0, True, True)
    assert (again.code, again.out) == (0, "no small files to compact\n")
    document = kctl("storage", "status", "-o", "json").document
    assert (document["files"], document["rows"]) == (1, 20)
    log = two_files.parent / "logs" / "operations.jsonl"
    operations = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["operation"] for line in operations] == ["storage optimize"] * 2

    kept = kctl("storage", "vacuum", "--yes")
    dry = kctl("storage", "vacuum", "--retention-hours", "0", "--dry-run")
    asked = kctl("storage", "vacuum", "--retention-hours", "0")
    assert len(list(two_files.glob("kctl-*/*.parquet"))) == 3
    removed = kctl("storage", "vacuum", "--retention-hours", "0", "--yes")

    assert (kept.code, kept.out) == (0, "no files to remove\n"), "it keeps seven days"
    assert [line.split("/")[0][:5] for line in dry.out.splitlines()[:2]] == ["kctl-"] * 2
    assert dry.out.splitlines()[2].startswith("would remove 2 files (")
    assert (asked.code, "use --yes" in asked.err) == (2, True)
    assert (removed.code, removed.out) == (0, "2 files removed\n")
    assert len(list(two_files.glob("kctl-*/*.parquet"))) == 1
    assert kctl("storage", "status", "-o", "json").document["rows"] == 20


def test_vacuum_spares_what_is_needed_again(kctl: Kctl, two_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = DeltaTable(two_files).version()
    kctl("storage", "optimize")
    monkeypatch.setattr("kctl.cli.storage.commands.confirm", lambda _: DeltaTable(two_files).restore(before))

    removed = kctl("storage", "vacuum", "--retention-hours", "0")

    assert (removed.code, removed.out) == (0, "0 files removed\n")
    assert DeltaTable(two_files).to_pyarrow_table().num_rows == 20


def test_dead_letters_of_a_table_are_requeued_for_its_workers(kctl: Kctl, table: Path) -> None:
    missing = kctl("storage", "status")
    assert (missing.code, "there is no Delta table in" in missing.err, table.exists()) == (1, True, False)
    lake = opened(table, Binding("g", "cluster-1"))
    lake.init_offsets([StoredOffset("t", 0, None, 0)])
    none = kctl("storage", "dead", "requeue")
    written(DeadLetterTable(lake, "g"), begun(lake, 0, 10), [3, 7], group="g").commit()

    def dead() -> list[int]:
        return [row["offset"] for row in kctl("storage", "dead", "list", "-o", "json").rows]

    requeued = [kctl("storage", "dead", "requeue", "--topic", "t", "--offset-to", "3") for _ in range(2)]
    stuck = kctl("storage", "requeue")

    done = "".join(ran.out for ran in (none, *requeued))
    assert done == "0 dead letters requeued\n1 dead letter requeued\n0 dead letters requeued\n"
    assert (stuck.code, "which has no queue" in stuck.err) == (2, True)
    status = kctl("storage", "status", "-o", "json").document
    assert (status["dead"], status["requeued"]) == (1, 1)
    assert "REQUEUED" in kctl("storage", "status").out.upper()
    assert dead() == [7]

    narrowed = kctl("storage", "requeue", "--cancel", "--topic", "t")
    cancelled = kctl("storage", "requeue", "--cancel")

    assert (narrowed.code, "leave out the other options" in narrowed.err) == (2, True)
    assert cancelled.out == "1 message that was requeued is a dead letter again\n"
    assert dead() == [3, 7]
