from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from kctl.http.access import AccessRights
from kctl.http.api.processes import _BYTES
from kctl.master.snapshot import FleetSnapshot
from tests.fleet_snapshot import TOKEN, TOKENS, ask, snapshot, source_of

HOLDER = {"authorization": f"Bearer {TOKEN}"}
ACCESS = AccessRights(tokens=TOKENS)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "worker-0.log"
    path.write_text("one\ntwo\nhalf a li")
    return path


def fleet(log: Path) -> FleetSnapshot:
    whole = snapshot()
    return replace(whole, supervised=(replace(whole.supervised[0], log=str(log)),))


def read(log: Path, query: str = "", name: str = "worker-0") -> httpx.Response:
    return asyncio.run(_asked(log, query, name))


async def _asked(log: Path, query: str, name: str) -> httpx.Response:
    return await ask(fleet(log), f"/api/v1/logs/{name}{query}", access=ACCESS, headers=HOLDER)


def test_a_log_is_read_in_whole_lines_and_goes_on_where_it_was_left(log: Path) -> None:
    first = read(log).json()
    assert first == {"text": "one\ntwo\n", "next": 8, "is_continued": False}

    with log.open("a") as more:
        more.write("ne\nthree\n")
    assert read(log, "?after=8").json() == {"text": "half a line\nthree\n", "next": 26, "is_continued": True}
    assert read(log, "?after=26").json() == {"text": "", "next": 26, "is_continued": True}


def test_after_a_rotation_or_a_flood_the_end_of_the_log_is_read_and_of_no_log_nothing(log: Path) -> None:
    log.write_text("rotated\n")
    assert read(log, "?after=5000").json() == {"text": "rotated\n", "next": 8, "is_continued": False}

    log.write_text("x" * 60 + "\n" + ("y" * 99 + "\n") * 2000)
    flooded = read(log, "?after=0").json()
    assert (flooded["is_continued"], flooded["next"], flooded["text"][:3]) == (False, 200_061, "yyy")
    assert _BYTES - 200 < len(flooded["text"]) < _BYTES

    log.unlink()
    assert read(log).json()["text"] == ""
    assert read(log, name="worker-9").status_code == 404
    log.mkdir()
    assert read(log).json()["error"]["message"].startswith("the log of worker-0 cannot be read: ")


@pytest.mark.shows("logs and settings over HTTP need an operations token, on loopback too")
@pytest.mark.parametrize("path", ["/api/v1/logs/worker-0", "/api/v1/settings"])
async def test_who_only_reads_sees_neither_logs_nor_settings(log: Path, path: str) -> None:
    reader = replace(TOKENS[0], may_act=False)
    access = AccessRights(tokens=(reader,))
    assert (await ask(fleet(log), path)).status_code == 403
    assert (await ask(fleet(log), path, access=ACCESS)).status_code == 401
    assert (await ask(fleet(log), path, access=access, headers=HOLDER)).status_code == 403
    source = source_of(fleet(log), settings=lambda: {"kafka": {"group": "g"}})
    shown = await ask(source, "/api/v1/settings", access=ACCESS, headers=HOLDER)
    assert (shown.json(), shown.headers["cache-control"]) == ({"settings": {"kafka": {"group": "g"}}}, "no-store")
