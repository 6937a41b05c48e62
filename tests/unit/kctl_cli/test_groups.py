import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

import pytest

from kctl.errors import NoMaster
from kctl.groups.advising import GroupAdvisers
from kctl.rows.advice import Advice, Answer
from kctl.status import Status
from kctl_agent.replies.questions import QUESTIONS, named
from tests.command_lines import Kctl, Master
from tests.meanwhile import serving
from tests.replies import status_json
from tests.served_groups import Latest, cluster, group, serving_groups
from tests.servers.scripted_agent import Answers
from tests.terminals import Terminal, on_a_terminal, plain

BAD = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066[link=http://x]y[/link][/x]\x08\x7f\r"
MAIN = cluster(
    "main",
    group("billing", 6, growth=1.5),
    group("payments-eu", 9, growth=-3.0, status=Status.STALLED, reason="nothing is committed"),
    group("payments-us", 0, growth=0.0),
)


@pytest.fixture
def latest() -> Latest:
    return {"main": MAIN}


@pytest.fixture
def url(latest: Latest) -> Iterator[str]:
    with serving_groups(latest) as served:
        yield served


def names(table: str) -> list[str]:
    return [line.split()[0] for line in table.splitlines()[1:]]


def test_groups_are_listed_the_worst_first_and_chosen_by_name_and_by_glob(kctl: Kctl, url: str) -> None:
    ran = kctl("groups", "--url", url)

    assert (ran.code, ran.err) == (0, "")
    assert names(ran.out) == ["payments-eu", "billing", "payments-us"]

    assert names(kctl("groups", "--url", url, "payments-*", "--sort", "group").out) == ["payments-eu", "payments-us"]
    assert names(kctl("groups", "--url", url, "billing", "payments-e?").out) == ["payments-eu", "billing"]
    assert names(kctl("groups", "--url", url, "nobody").out) == []


class Elsewhere(BaseHTTPRequestHandler):
    """A proxy or the target of a redirect, which redirects again."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.headers.get("authorization", "-"))
        self.send_response(302)
        self.send_header("location", "http://localhost:1/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Elsewhere, "asked", [])
    server = HTTPServer(("127.0.0.1", 0), Elsewhere)
    with serving(server):
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.mark.shows("the token of `kctl groups` never goes unencrypted through a proxy or after a redirect")
def test_the_token_is_sent_to_the_exporter_alone(
    kctl: Kctl, url: str, elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("hunter2-hunter2-hunter2")
    open_to_all = kctl("groups", "--token-file", str(tmp_path / "token"), "--url", url)
    assert (open_to_all.code, "every user of this machine may open it" in open_to_all.err) == (2, True)
    (tmp_path / "token").chmod(0o600)
    words = ("groups", "--token-file", str(tmp_path / "token"), "--url")
    for variable in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(variable, elsewhere)

    assert kctl(*words, url).code == 0
    assert Elsewhere.asked == [], "no proxy"

    plain = kctl(*words, "http://exporter.example:9751")
    assert (plain.code, "no TLS" in plain.err) == (2, True)
    redirected = kctl(*words, elsewhere)
    assert (redirected.code, "answered 302" in redirected.err) == (NoMaster.exit_code, True)
    assert Elsewhere.asked == ["Bearer hunter2-hunter2-hunter2"], "it was asked, and led nowhere"


@pytest.mark.shows("a list of groups that is cut off or incomplete is reported")
def test_a_list_that_is_cut_off_is_no_failure_and_an_incomplete_one_is(kctl: Kctl, latest: Latest, url: str) -> None:
    latest["main"] = cluster("main", *(group(f"g-{number}", 1) for number in range(2345)))

    default, few = kctl("groups", "--url", url), kctl("groups", "--url", url, "g-1*", "--limit", "7", "-o", "json")

    assert (default.code, default.err) == (0, "1,000 of 2,345 groups; --limit takes up to 10,000\n")
    assert (few.code, few.err) == (0, "7 of 1,111 groups; --limit takes up to 10,000\n")
    assert len(json.loads(few.out)["rows"]) == 7
    latest["main"] = MAIN
    latest["late"] = None
    latest["down"] = cluster("down", errors={"groups": "nobody answers"})
    latest["lame"] = replace(cluster("lame", errors={"members": "broker 2 hangs"}), is_ready=True)

    ran = kctl("groups", "--url", url)

    for words in (("groups",), ("group", "billing")):
        wrong = kctl(*words, "--url", url, "--cluster", "mian")
        assert (wrong.code, wrong.out) == (2, "")
        assert "cluster `mian` is not collected; the collected clusters are: " in wrong.err
    assert (ran.code, names(ran.out)) == (3, ["main", "main", "main"])
    assert ran.err.strip().split("; ") == [
        "the first poll of cluster late is not finished yet",
        "cluster down has not been polled completely yet: groups: nobody answers",
        "cluster lame: members: broker 2 hangs",
    ]


def test_a_group_that_is_missing_is_named(kctl: Kctl, latest: Latest, url: str) -> None:
    missing = kctl("group", "nobody", "--url", url)
    latest["late"] = None
    unknown = kctl("group", "nobody", "--url", url)
    latest["late"] = replace(MAIN, is_ready=True, errors={"groups": "no broker answers"})
    unlisted = kctl("group", "nobody", "--url", url)

    assert (missing.code, missing.out) == (19, ""), missing.err
    assert missing.err.startswith("kctl: there is no group `nobody` among the collected groups")
    assert (unknown.code, unknown.out) == (3, "")
    assert unknown.err.startswith("kctl: it is not known yet whether group `nobody` exists: the first poll of cluster")
    assert (unlisted.code, "`nobody` exists: no broker answers" in unlisted.err) == (3, True)


@pytest.mark.shows("`kctl groups --watch` lists the worst first; 80 columns cut long names, never numbers")
def test_watching_groups_on_a_terminal_redraws_in_place_and_cuts_no_number(latest: Latest, url: str) -> None:
    long = "a-group-whose-name-is-much-longer-than-there-is-room-for"
    with Terminal("groups", "--url", url, "--watch", "0.1", columns=80, rows=8) as terminal:
        terminal.read_until(r"payments-eu.*\x1b\[H.*payments-us.*\x1b\[J")
        others = (group(f"g-{number}", number, None, Status.WARN, "x" * 80) for number in range(49))
        latest["other"] = cluster("other")
        latest["main"] = cluster("main", group(long, 1_234_567, growth=-3.0, status=Status.STALLED), *others)
        seen = terminal.read_until(r"g-48[^\n]*\n.*\x1b\[H.*\x1b\[H")
        assert terminal.interrupt() == 0

    title, _, summary, headings, worst, second, more, *_ = plain(seen.split("\x1b[H")[-2])
    assert title.startswith(f"groups at {url}  every 0.1 s  ")
    assert summary == "50 groups · 1 stalled · 49 warn · lag 1,235,743"
    assert headings.split()[:6] == ["cluster", "group", "lag", "behind", "growth/s", "status"]
    assert worst.split()[:6] == ["main", f"{long[:27]}…", "1234567", "2s", "-3.0", "stalled"]
    assert second.split()[:2] == ["main", "g-48"]
    assert max(len(worst), len(second)) <= 80
    assert more.endswith(" more lines")


def test_watching_a_group_shows_what_is_missing_and_outlives_an_exporter_that_is_away(latest: Latest) -> None:
    with ExitStack() as stack:
        url = stack.enter_context(serving_groups(latest))
        with Terminal("group", "payments-us", "--url", url, "--watch", "0.1", columns=200, rows=12) as terminal:
            terminal.read_until(r"orders +0 .*m-1")
            latest["main"] = cluster("main")
            terminal.read_until("kctl: there is no group `payments-us`")
            assert terminal.process.wait(60) == 19
        with Terminal("groups", "--url", url, "--watch", "0.1", columns=200) as terminal:
            latest["late"] = None
            terminal.read_until("the first poll of cluster late is not finished yet")
            stack.close()
            terminal.read_until("kctl: nothing answers at http")
            assert terminal.interrupt() == 0


def test_busy_groups_have_advice(kctl: Kctl, url: str, latest: Latest, monkeypatch: pytest.MonkeyPatch) -> None:
    first = kctl("advise", "--group", "billing", "--url", url)
    missing = kctl("advise", "--group", "nobody", "--url", url)
    keep = Advice(Answer.KEEP, "the largest load is 0.50 with 2", 2, workers=2, needed=2)
    monkeypatch.setattr(GroupAdvisers, "advice", lambda *_: keep)
    known = kctl("advise", "-g", "billing", "--url", url)

    assert (first.code, first.err) == (3, "kctl: the group is watched from now on: ask again in a minute\n")
    assert missing.code == 19
    assert (known.code, known.out.splitlines()[0]) == (0, "keep: the largest load is 0.50 with 2")


SUPERVISED = status_json(
    name=BAD,
    desired=BAD,
    state="backoff",
    pid=None,
    last_error=BAD,
    warning=BAD,
    log=BAD,
    paused=[{"topic": BAD, "partition": None, "by": BAD, "since": 0}],
)


def filled(kind: Any) -> Any:
    origin, of = get_origin(kind), get_args(kind)
    if kind in (str, bool, int, float):
        return BAD if kind is str else kind(1)
    if origin is tuple:
        return [filled(of[0])]
    if origin is Mapping:
        return {filled(of[0]): filled(of[1])}
    if origin is not None:
        return filled(next(each for each in of if each is not type(None)))
    return {name: filled(each) for name, each in get_type_hints(kind).items()}


RESULTS: dict[str, dict[str, Any]] = {
    **{name: filled(named(each.sent)) for name, each in QUESTIONS.items()},
    "status": {
        "rows": [SUPERVISED],
        "verdict": {"level": "failing", "about": BAD, "reason": BAD, "since": 1.0},
        "lag": {
            "total": 1,
            "unknown": 0,
            "worst": [{"topic": BAD, "partition": 0, "status": BAD, "lag": 1, "reason": BAD}],
        },
    },
    "orders": {"rows": []},
}


TABLES = [*(f"rpc {name}" for name in QUESTIONS), "status", "orders"]
ERRORS = f"rpc {BAD}", f"-c /{BAD} start", f"status --{BAD}", f"config check -c {BAD}"
ONE_BY_ONE = """import sys
from kctl.cli.entry import run
for words in sys.argv[1:]:
    print("=" * 9, run(words.split(" ")))"""


@pytest.mark.shows("message bytes, names, errors and log lines cannot steer the terminal; JSON stays the same document")
def test_tables_and_errors_cannot_steer_the_terminal(master: Master, url: str, latest: Latest) -> None:
    master({name: Answers(result) for name, result in RESULTS.items()})
    latest["main"] = cluster("main", group(BAD, 6, status=Status.WARN, reason=BAD))
    words = [*TABLES, *ERRORS, f"groups --url {url}", f"group {BAD} --url {url}"]

    seen = on_a_terminal(*words, command=(sys.executable, "-c", ONE_BY_ONE)).decode("utf-8", "surrogateescape")

    *printed, _ = re.split(r"={9} \d+\r\n", seen)
    for each, text in zip(words, printed, strict=True):
        assert text.replace("\r\n", "").isprintable(), ascii(text)
        assert each in ("rpc block_size", "orders") or r"\u001b]0;owned" in text, (each, text)


def test_full_screens_show_markup_and_escapes_as_text(master: Master, url: str, latest: Latest) -> None:
    master({name: Answers(result) for name, result in RESULTS.items()})
    latest["main"] = cluster("main", group(BAD, 6, status=Status.WARN, reason=BAD))

    for words, end in ("top --every 60", "q: end"), (f"groups --watch 60 --url {url}", "evil"):
        text = on_a_terminal(*words.split(), until=end).decode("utf-8", "surrogateescape")

        assert r"\u001b]0;owned\u0007" in text
        assert "[link=http://x]y[/link][/x]" in text
        for bad in ("\x1b]", "\x9b", "\u202e", "\u2066", "\x08", "\x7f", "\x07", "\x1b[2J"):
            assert bad not in text, ascii(bad)


def test_lines_of_a_log_cannot_steer_the_terminal_and_a_pipe_gets_them_raw(master: Master, tmp_path: Path) -> None:
    log = tmp_path / "w.log"
    log.write_text(f"{BAD}\nnext\tline\n")
    master({"status": Answers({"rows": [status_json(name="w", log=str(log))]})})

    text = on_a_terminal("logs", "w").decode("utf-8", "surrogateescape")

    assert text.replace("\r\n", "").replace("\t", "").isprintable(), ascii(text)
    assert r"\u001b]0;owned" in text
    piped = subprocess.run([sys.executable, "-m", "kctl", "logs", "w"], capture_output=True, check=True).stdout
    assert piped == log.read_bytes()
