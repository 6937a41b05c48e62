import asyncio
import ssl
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from kctl.hosts.peers import Peers, PeersAccess
from kctl.hosts.roster import Gone, Host, Roster, agreed, decoded, lost
from kctl_agent.errors import AgentUnreachable
from tests.certificates import make_certificate

DAY = 86_400.0


def host(name: str, incarnation: int = 1, url: str = "", **fields: object) -> Host:
    return Host(name, url or f"https://{name}:9750", incarnation, **fields)  # type: ignore[arg-type]


def described(**changes: object) -> bytes:
    return msgspec.json.encode({"name": "a", "url": "https://a", "incarnation": 1, **changes})


@dataclass
class Group:
    roster: Roster = field(default_factory=Roster)
    now: float = 1000.0

    def of(self, *hosts: Host | None, after: float = 1.0) -> Roster:
        self.now += after
        self.roster = agreed("a", hosts, self.roster, self.now, DAY)
        return self.roster


def names(roster: Roster) -> list[str]:
    return [each.name for each in roster.hosts]


def test_a_host_that_leaves_without_notice_is_missed_for_a_day_or_until_it_is_back() -> None:
    group = Group()
    group.of(host("a"), host("b"))

    gone = group.of(host("a"))
    assert (names(gone), [(each.host.name, each.since) for each in gone.gone]) == (["a"], [("b", 1002.0)])
    assert group.of(host("a"), host("c")).gone == gone.gone
    back = group.of(host("a"), host("b", 2), host("c"))
    assert (names(back), back.gone) == (["a", "b", "c"], ())

    group.of(host("a"), host("b", 2, is_leaving=True), host("c"))
    assert [each.host.name for each in group.of(host("a")).gone] == ["c"], "b has announced its end"
    assert group.of(host("a"), after=DAY - 1).gone != ()
    assert group.of(host("a"), after=1).gone == ()


def test_a_host_is_forgotten_by_all_or_a_day_after_now_whatever_its_time_but_its_successor_counts() -> None:
    group = Group()
    group.of(host("a"), host("b"))
    group.of(host("a"))

    forgetting = host("a", forgotten=("b@1",))
    assert group.of(forgetting).gone == ()
    group.of(forgetting, host("b", 2))
    assert [each.host.incarnation for each in group.of(forgetting).gone] == [2]

    group = Group(Roster("a", 1, (host("a"),), (Gone(host("b"), 2000.0),)), 1000.0)

    assert group.of(host("a")).gone != ()
    assert group.of(host("a"), after=1001 + DAY).gone == ()


def test_a_clone_of_a_host_does_not_take_its_place_and_the_one_that_is_known_goes_on_whatever_clocks_say() -> None:
    group = Group()
    for first, second in ((5, 6), (6, 5)):
        group.of(host("a", first))
        roster = group.of(host("a", first), host("a", second))

        assert [each.incarnation for each in roster.hosts] == [first]
        assert "the name a belongs to a" in roster.refused[0].reason
    assert [each.incarnation for each in group.of(host("a", 5)).hosts] == [5]


@pytest.mark.shows("a host with another protocol is reported during a rolling upgrade")
def test_all_speak_the_newest_protocol_of_the_oldest_release_and_others_are_rejected() -> None:
    newer = [host(f"n{number}", number + 2, protocols=(2, 3)) for number in range(3)]
    roster = Group().of(host("old", 1), *newer)

    assert (names(roster), roster.protocol) == (["n0", "n1", "n2"], 3)
    assert [(each.name, each.reason) for each in roster.refused] == [
        ("old", "it speaks protocols 1 to 1, most hosts 2")
    ]
    assert names(Group().of(host("old", 1), newer[0])) == ["old"]

    roster = Group().of(host("a", protocols=(1, 2)), host("b", protocols=(1, 1)), host("c", protocols=(2, 3)))
    assert (names(roster), roster.protocol) == (["a", "b"], 1)
    assert [each.reason for each in roster.refused] == ["it speaks protocols 2 to 3, most hosts 1"]


@pytest.mark.parametrize(
    ("older", "newer", "what"),
    [
        (host("b", 1, "https://one:1"), host("b", 2, "https://two:1"), "the name b belongs to b at https://one:1"),
        (host("b", 1, "https://one:1"), host("c", 2, "https://one:1"), "the address https://one:1 belongs to b"),
    ],
)
def test_of_two_with_one_name_or_address_the_older_goes_on(older: Host, newer: Host, what: str) -> None:
    for order in ([older, newer], [newer, older]):
        roster = Group().of(*order)
        assert roster.hosts == (older,)
        assert [(each.name, each.url) for each in roster.refused] == [(newer.name, newer.url)]
        assert what in roster.refused[0].reason
    assert agreed(newer.name, [older, newer], Roster(), 1.0, DAY).leader == older.name, "a rejected host does not lead"


@pytest.mark.parametrize(
    "description",
    [
        *(b"", b"\xff", b"[]", b"null", b'{"name": "a"}', b'{"zz":' + b"[" * 100_000),
        *(described(name=name) for name in ("a\0", "../a")),
        *(described(url=url) for url in ("ftp://a", "https://u:p@a", "https://a/x", "https://a:99999", "https://[a")),
        *(described(url=url) for url in ("https://[:.]", "https://münchen.example")),
        *(described(incarnation=-1), described(protocols=(10**600, 10**600))),
    ],
)
def test_what_describes_no_master_counts_for_nothing(description: bytes) -> None:
    assert decoded(Host, description) is None
    roster = Group().of(decoded(Host, description), host("a"))
    assert names(roster) == ["a"]
    assert [each.reason for each in roster.refused] == ["1 of the group's members are not masters"]


def test_what_a_newer_release_adds_is_ignored_and_a_roster_comes_back_as_it_went() -> None:
    newer = b'{"name": "a", "url": "https://a:1", "incarnation": 7, "protocols": [1, 9], "more": {}}'
    assert decoded(Host, newer) == Host("a", "https://a:1", 7, protocols=(1, 9))

    roster = Group().of(host("a"), host("b"))
    assert decoded(Roster, msgspec.json.encode(roster)) == roster
    assert decoded(Roster, b"{") is None


@pytest.mark.parametrize("since", ["1e300", "-1", "NaN"])
def test_a_roster_with_a_time_that_is_none_is_not_read(since: str) -> None:
    gone = f'{{"host": {{"name": "a", "url": "https://a:1", "incarnation": 7}}, "since": {since}}}'
    assert decoded(Roster, f'{{"gone": [{gone}]}}'.encode()) is None


def test_what_a_leader_that_has_just_started_cannot_know_is_added_by_the_others() -> None:
    before = Group().of(host("a", forgotten=("x@1",)), host("b"), host("c"), host("d", is_leaving=True))
    after = agreed("e", [host("c"), host("e")], Roster(), 2000.0, DAY)

    missed = lost(before, after, 2000.0)

    assert [(each.host, each.since) for each in missed] == [(host("a"), 2000.0), (host("b"), 2000.0)]
    whole = agreed("e", [host("c", missed=missed), host("e", missed=missed)], after, 2001.0, DAY)
    assert whole.gone == missed
    assert lost(after, whole, 2002.0) == ()
    assert (
        agreed("c", [host("c", missed=missed, forgotten=("a@1", "e@1")), host("b", 2)], after, 2001.0, DAY).gone == ()
    )


def test_the_newest_hundred_that_have_gone_are_kept() -> None:
    group = Group()
    for number in range(120):
        group.of(host("a"), host(f"pod-{number}"))

    gone = group.of(host("a")).gone
    assert {each.host.name for each in gone} == {f"pod-{number}" for number in range(20, 120)}
    assert lost(group.roster, Roster("a", 1, (host("a"),), gone), group.now) == ()


async def serve(folder: Path, seen: list[bytes]) -> tuple[asyncio.Server, str]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    return server, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_withdrawn_authority_is_sent_no_token_after_a_reload_and_the_new_one_is(tmp_path: Path) -> None:
    seen: list[bytes] = []
    folders = [tmp_path / name for name in ("old", "new")]
    for folder in folders:
        folder.mkdir()
        make_certificate(folder)
    (old, old_url), (new, new_url) = [await serve(folder, seen) for folder in folders]
    authority = tmp_path / "ca.pem"
    authority.write_text((folders[0] / "cert.pem").read_text())
    async with old, new:
        peers = Peers(PeersAccess(("reader-1",), ca=str(authority)))
        await peers.get(old_url, "/", 5.0)
        with pytest.raises(AgentUnreachable, match="its certificate is not trusted"):
            await peers.get(new_url, "/", 5.0)

        authority.write_text((folders[1] / "cert.pem").read_text())
        peers.use(PeersAccess(("reader-2",), ca=str(authority)))

        assert await peers.get(new_url, "/", 5.0) == b"{}"
        with pytest.raises(AgentUnreachable, match="its certificate is not trusted"):
            await peers.get(old_url, "/", 5.0)
        with pytest.raises(AgentUnreachable, match="its address cannot be used"):
            await peers.get("https://a:1٣", "/", 5.0)
        await peers.close()
    assert [b"reader-1" in each for each in seen] == [True, False]


async def test_a_host_that_does_not_know_the_first_token_any_more_is_shown_the_next() -> None:
    seen: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        status = b"200 OK" if b"Bearer new" in seen[-1] else b"401 Unauthorized"
        writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        peers = Peers(PeersAccess(("old", "new"), ("old", "older"), allow_plain=True))
        assert await peers.get(url, "/", 5.0) == b"{}"
        assert await peers.operate("POST", url, "/", 5.0, b"{}") == b"{}"
        await peers.close()
    assert [b"Bearer old\r" in each for each in seen] == [True, False, True, False]
