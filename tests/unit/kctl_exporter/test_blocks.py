"""The blocks of a page, joined, are one text and one gzip member, whatever they contain."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from kctl.exporter.text import TextBlock, gzipped, plain


def block(text: bytes) -> TextBlock:
    return TextBlock(lambda: text)


@given(st.lists(st.binary(max_size=5000), max_size=20))
def test_compressed_blocks_are_one_gzip_member_of_the_whole_text(texts: list[bytes]) -> None:
    page = [block(text) for text in texts]
    decompressor = zlib.decompressobj(wbits=31)  # gzip only; zlib verifies the checksum

    found = decompressor.decompress(gzipped(page))

    assert found == plain(page) == b"".join(texts)
    assert decompressor.eof
    assert decompressor.unused_data == b""
