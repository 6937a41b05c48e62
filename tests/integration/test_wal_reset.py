"""SQLite's WAL-reset bug: a commit between a checkpoint's read of the log and its copy.

If the checkpointing connection maps the file, one system call falls into that moment: it unmaps the file
(`sqlite3WalCheckpoint` in wal.c). A preloaded library holds the checkpoint there. Without protection every SQLite with
the bug damages the file; with the protection of `checkpoint` none does.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import eventually

HAS_THE_BUG = sqlite3.sqlite_version_info < (3, 51, 3) and sqlite3.sqlite_version_info[:2] not in ((3, 50), (3, 44))

SHIM = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
int munmap(void *start, size_t length) {
    if (unlink("armed") == 0) {
        close(creat("paused", 0600));
        for (int i = 0; i < 3000 && access("go", F_OK) != 0; i++) usleep(10000);
    }
    return syscall(SYS_munmap, start, length);
}
"""

CHECKPOINT = """
import sqlite3, sys
from contextlib import nullcontext
from kctl_agent.storage.file import checkpoint

db, guard = (sqlite3.connect("db", isolation_level=None) for _ in range(2))
db.execute("pragma wal_autocheckpoint=0")
db.execute("pragma mmap_size=1000000000")
db.execute("select count(*) from t where b is not null").fetchone()
print("ready", flush=True)
sys.stdin.readline()
how = sys.argv[1]
with getattr(checkpoint, how)(guard) if how != "unprotected" else nullcontext():
    open("armed", "w").close()
    db.execute("pragma wal_checkpoint(passive)")
"""


@pytest.fixture
def shim(tmp_path: Path) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    made = tmp_path / "shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-x", "c", "-o", str(made), "-"], input=SHIM, text=True, check=True)
    return made


def grow(db: sqlite3.Connection, rows: int) -> None:
    for _ in range(rows):
        db.execute("insert into t(b) values (randomblob(3000))")


def checkpoint(db: sqlite3.Connection) -> None:
    assert db.execute("pragma wal_checkpoint(passive)").fetchone()[0] == 0


@pytest.mark.shows("SQLite's WAL-reset bug damages an unprotected file, but not kctl's")
@pytest.mark.parametrize("how", ["unprotected", "reading", "writing"])
def test_a_commit_at_the_moment_of_the_wal_reset_bug_damages_no_file(how: str, tmp_path: Path, shim: Path) -> None:
    if how == "unprotected" and not HAS_THE_BUG:
        pytest.skip(f"SQLite {sqlite3.sqlite_version} does not have the bug")
    with closing(sqlite3.connect(tmp_path / "db", isolation_level=None, timeout=0.1)) as db:
        db.execute("pragma journal_mode=wal")
        db.execute("pragma wal_autocheckpoint=0")
        db.execute("create table t(i integer primary key, b blob)")
        grow(db, 20)
        db.execute("pragma wal_checkpoint(truncate)")
        with subprocess.Popen(
            [sys.executable, "-c", CHECKPOINT, how],
            cwd=tmp_path,
            env={**os.environ, "LD_PRELOAD": str(shim)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other:
            assert other.stdin is not None
            assert other.stdout is not None
            assert other.stdout.readline() == "ready\n"
            grow(db, 50)
            checkpoint(db)
            other.stdin.write("\n")
            other.stdin.flush()
            eventually((tmp_path / "paused").exists)
            try:
                grow(db, 1)  # restarts the log
                is_locked = False
            except sqlite3.OperationalError:
                is_locked = True
            (tmp_path / "go").touch()
        assert other.returncode == 0
        grow(db, 200)
        checkpoint(db)
        grow(db, 1)

        assert is_locked == (how == "writing")
        assert is_damaged(tmp_path / "db") == (how == "unprotected")


def is_damaged(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as db:
        try:
            return bool(db.execute("pragma integrity_check").fetchall() != [("ok",)])
        except sqlite3.DatabaseError:
            return True
