"""The page's first screen for each state that users meet, on a telephone and on a desk."""

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from selenium import webdriver

from tests.integration.page_states import HEIGHTS, NAMES, State, on_page, seen, states
from tests.servers.kafka_broker import KafkaBroker

SHORT = ("stalled", "dead-letters")
NUMBERS = ["oldest unhandled", "messages waiting", "handled", "dead letters"]
_TILES = "return [...document.querySelectorAll('#summary dt')].map(each => each.textContent)"
_ORDER = """
const ids = ['reason', 'also', 'summary', 'kafka', 'charts-title'];
return ids.map(id => document.getElementById(id).getBoundingClientRect().bottom + scrollY);
"""
_LISTED = "return [...document.querySelectorAll('#partitions tbody [data-name=status]')].map(each => each.innerText)"
_WRONG = """
const found = [], root = document.documentElement, texts = [];
if (root.scrollWidth > root.clientWidth) found.push(`scrolls sideways: ${root.scrollWidth} px`);
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode, of = node.parentElement, words = node.textContent.trim(), range = new Range();
  if (!words || !of.checkVisibility() || of.closest('svg, .u-wrap, select, #marks')) continue;
  range.selectNodeContents(node);
  for (const box of range.getClientRects()) if (box.width > 1) texts.push({of, box, words});
}
for (const {of, box, words} of texts) {
  const frame = of.closest('.scroll, pre');
  if (!frame && (box.left < -1 || box.right > root.clientWidth + 1)) found.push(`outside: ${words}`);
  for (let each = of; each && each !== frame; each = each.parentElement) {
    const style = getComputedStyle(each), edge = each.getBoundingClientRect();
    if (style.overflowX === 'visible' || style.textOverflow === 'ellipsis') continue;
    if (box.right > edge.right + 1 || box.bottom > edge.bottom + 1) found.push(`cut off: ${words}`);
  }
}
const near = texts.filter(({of, box}) => box.top < innerHeight && !of.closest('.scroll'));
near.forEach((one, number) => {
  for (const other of near.slice(number + 1)) {
    const wide = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
    const high = Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
    const apart = one.of !== other.of && !one.of.contains(other.of) && !other.of.contains(one.of);
    if (wide > 1 && high > 6 && apart) found.push(`overlap: ${one.words} | ${other.words}`);
  }
});
return found;
"""


@pytest.fixture
def shown(request: pytest.FixtureRequest, broker: KafkaBroker, short_dir: Path) -> Iterator[dict[str, State]]:
    with states(short_dir, broker, request.param) as found:
        yield found


@pytest.mark.shows("the page: the first screen has the verdict, the user's four numbers, then Kafka's view")
@pytest.mark.shows("the page: in ten states of real fleets the first screen has verdict, reason, remedy and numbers")
@pytest.mark.parametrize("shown", [SHORT, pytest.param(NAMES, marks=pytest.mark.long)], indirect=True, ids=len)
def test_nothing_is_cut_off(chromium: webdriver.Chrome, shown: dict[str, State]) -> None:
    for state, width in product(shown.values(), HEIGHTS):
        with on_page(chromium, state, width):
            reason = seen(chromium, state, "return document.getElementById('reason').textContent")
            assert re.search(state.remedy, reason)
            order = seen(chromium, state, _ORDER)
            assert order == sorted(order)
            assert order[2] < HEIGHTS[width], "the four numbers are visible without scrolling"
            assert seen(chromium, state, _TILES) == NUMBERS
            assert seen(chromium, state, _WRONG) == []
            if width < 500:
                assert {"● ok", "● idle", "ok", "idle"}.isdisjoint(seen(chromium, state, _LISTED))
