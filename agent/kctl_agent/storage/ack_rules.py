"""Decides for every storage which claimed messages are done, retried or dead-lettered. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from kctl_agent.message import Message
from kctl_agent.storage.block import BadBlock, Block, decode, pack
from kctl_agent.storage.claim import Claim, DeadLetter, Errors, Settled

MAX_ERROR_BYTES = 8192
"""Errors are cut to this size, because an exception's message may quote the payload."""


@dataclass(frozen=True, slots=True)
class AckVerdict:
    """The changes that `settle` makes to a block in one transaction. `settle` stores `dead`, and replaces the block
    with `again`, or removes it if `again` is None."""

    again: Block | None
    dead: tuple[DeadLetter, ...]
    settled: Settled


def judge(claim: Claim, acks: Sequence[bool], dead: Mapping[int, str], codec: str, at: float) -> AckVerdict:
    count = len(claim.messages)
    if len(acks) != count:
        raise ValueError(f"{len(acks)} acks for {count} messages of {claim.topic}-{claim.partition}")
    block = claim.block
    left = [i for i, ack in enumerate(acks) if not ack and i not in dead]
    dying = [(replace(claim.messages[i], tries=claim.tries + 1), error) for i, error in sorted(dead.items())]
    dead_letters = tuple(given_up([m for m, _ in dying], [error for _, error in dying], block.topic_id, codec, at))
    settled = Settled(gone=count - len(left) - len(dying), again=len(left), dead=len(dying))
    if len(left) in (0, count):
        return AckVerdict(block if left else None, dead_letters, settled)
    columns = decode(block.body, block.first, block.count).take(np.isin(np.arange(count), left))
    return AckVerdict(Block.of(block.topic, block.topic_id, block.partition, columns, codec), dead_letters, settled)


def given_up(
    messages: Sequence[Message], errors: Errors, topic_id: str | None, codec: str, at: float
) -> list[DeadLetter]:
    each = [errors] * len(messages) if isinstance(errors, str) else errors
    blocks = (Block.of(m.topic, topic_id, m.partition, pack([m]), codec) for m in messages)
    return [
        DeadLetter("", block, message.tries, _kept(error), at)
        for message, error, block in zip(messages, each, blocks, strict=True)
    ]


def requeued(
    dead_letters: Iterable[DeadLetter], block_messages: int, block_bytes: int, codec: str
) -> tuple[list[Block], list[str]]:
    """Packs readable dead letters into blocks in offset order. Also returns the ids of the packed dead letters."""
    ids, found = [], []
    for dead_letter in dead_letters:
        with suppress(BadBlock):
            found += [(dead_letter.block, message) for message in dead_letter.messages()]
            ids += [] if dead_letter.is_damaged else [dead_letter.id]
    found.sort(key=lambda pair: (*_incarnation(pair), pair[1].offset))
    blocks = []
    for (topic, partition, _), group in groupby(found, _incarnation):  # a block has one topic id
        pairs = list(group)
        columns = pack([message for _, message in pairs])
        topic_id = pairs[0][0].topic_id
        parts = columns.split(block_messages, block_bytes)
        blocks += [Block.of(topic, topic_id, partition, part, codec) for part in parts]
    return blocks, ids


def _kept(error: str) -> str:
    return error.encode("utf-8", "backslashreplace")[:MAX_ERROR_BYTES].decode("utf-8", "ignore")


def _incarnation(pair: tuple[Block, Message]) -> tuple[str, int, str]:
    block = pair[0]
    return block.topic, block.partition, block.topic_id or ""


def opened(
    leased: Iterable[tuple[str, int, Block]], owner: str, token: str, at: float
) -> tuple[list[Claim], dict[str, DeadLetter]]:
    """Returns a claim for each readable block, and a dead letter for each damaged block, keyed by block id."""
    claims, bad = [], {}
    for id_, tries, block in leased:
        try:
            claims.append(Claim(id_, token, owner, block, tries, block.messages(tries)))
        except BadBlock as error:
            bad[id_] = DeadLetter("", block, tries, _kept(str(error)), at, is_damaged=True)
    return claims, bad
