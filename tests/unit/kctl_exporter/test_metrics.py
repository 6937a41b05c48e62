import gzip
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from kctl.exporter import Exposition
from kctl.exporter.text import Exposed, TextBlock, gzipped, plain
from kctl.groups.snapshot import Clusters
from kctl.rows.partitions import LagTotals
from tests.exporters import Samples
from tests.fleet_snapshot import collected, full_snapshot, partition, snapshot
from tests.served_groups import CLUSTERS, cluster, group


def page(latest: Exposed | None) -> Samples:
    return Samples(Exposition(lambda: latest).render()[0].decode())


def test_what_is_not_known_is_absent_and_never_zero() -> None:
    samples = page(snapshot())

    assert samples.of("kctl_consumer_lag", "partition") == {("0",): 6, ("1",): 6}
    assert samples.of("kctl_storage_messages", "state") == {("pending",): 7, ("processing",): 0}
    assert samples.of("kctl_group_behind_transaction") == {}
    assert page(replace(snapshot(), kafka_lag=LagTotals(None))).of("kctl_group_lag") == {}
    known = page(replace(snapshot(), kafka_lag=LagTotals(0, behind_transaction=12)))
    assert (known.of("kctl_group_lag"), known.of("kctl_group_behind_transaction")) == ({(): 0}, {(): 12})
    assert page(None).page == ""


FLEETS = [collected(partition(0), partition(1, lag)) for lag in (6, 6, 6, None, None, None, 4, 6)]
GROUPS = [[group("billing", 6)], [group("billing", 5)], [], [group("x", 5), group("billing", 6)]]


@pytest.mark.parametrize(
    "snapshots",
    [
        [*FLEETS, collected(partition(0)), FLEETS[0]],
        [Clusters((cluster("main", *groups), cluster("other", group("billing", 6)))) for groups in GROUPS],
    ],
    ids=["a fleet", "clusters"],
)
def test_snapshots_one_after_the_other_are_rendered_as_each_by_itself(snapshots: list[Exposed]) -> None:
    latest = snapshots[0]
    exposition = Exposition(lambda: latest)

    for latest in snapshots:
        assert exposition.render() == Exposition(lambda: latest).render()  # noqa: B023 - called at once


@pytest.mark.shows("`/metrics` omits unknown values and ended series; OpenMetrics, gzip")
@pytest.mark.parametrize("latest", [full_snapshot(), CLUSTERS], ids=["fleet", "clusters"])
def test_prometheus_client_reads_the_same_from_both_formats(latest: Exposed) -> None:
    exposition = Exposition(lambda: latest)

    text, text_type, _ = exposition.render()
    openmetrics, openmetrics_type, _ = exposition.render("application/openmetrics-text;version=1.0.0")

    assert (text_type.split(";")[0], openmetrics_type.split(";")[0]) == ("text/plain", "application/openmetrics-text")
    assert families(text_string_to_metric_families, text) == families(parse_openmetrics, openmetrics)


def families(parse: Callable[..., Iterable[Family]], body: bytes) -> dict[str, object]:
    found: dict[str, object] = {}
    for family in parse(body.decode()):
        samples = {(each.name, frozenset(each.labels.items())): each.value for each in family.samples}
        found[family.name] = (family.type, family.documentation, samples)
    return found


def test_gzip_is_for_clients_that_accept_it() -> None:
    exposition = Exposition(full_snapshot)
    plain, _, is_plain = exposition.render("", "identity, gzip;q=0")

    body, _, is_gzipped = exposition.render("", "deflate, gzip")

    assert (is_plain, is_gzipped) == (False, True)
    assert gzip.decompress(body) == plain


@given(st.lists(st.binary(max_size=5000), max_size=20))
def test_compressed_blocks_are_one_gzip_member_of_the_whole_text(texts: list[bytes]) -> None:
    blocks = [TextBlock(lambda text=text: text) for text in texts]  # type: ignore[misc]
    decompressor = zlib.decompressobj(wbits=31)  # gzip only; zlib verifies the checksum

    found = decompressor.decompress(gzipped(blocks))

    assert found == plain(blocks) == b"".join(texts)
    assert decompressor.eof
    assert decompressor.unused_data == b""


@pytest.mark.shows("simultaneous scrapes share one page and send no request to a broker")
def test_a_page_that_is_asked_for_is_ready_when_its_snapshot_becomes_the_last_one() -> None:
    latest, following = snapshot(), replace(snapshot(), kafka_lag=LagTotals(2))
    exposition = Exposition(lambda: latest)
    assert exposition.ready("", "gzip") is None, "nobody has asked yet"
    before = exposition.render("", "gzip")

    exposition.prepare(following)

    assert exposition.ready("", "gzip") == before, "the last snapshot is still the one before"
    assert exposition.ready("", "") is None, "nobody has asked for it without gzip"
    latest = following
    assert exposition.ready("", "gzip") == exposition.render("", "gzip") != before
    assert exposition.render("", "gzip") == Exposition(lambda: following).render("", "gzip")
