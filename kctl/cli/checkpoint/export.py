"""`kctl checkpoint export`: prints a query's offsets as startingOffsets."""

import argparse
import sys
from collections.abc import Mapping

from kctl.checkpoints.checkpoint import place, read
from kctl.checkpoints.entries import merged, starting_offsets
from kctl.cli.output import echo
from kctl.cli.table import clean
from kctl.errors import CheckpointUnusable, UsageError


def export(options: argparse.Namespace, env: Mapping[str, str]) -> None:  # noqa: ARG001 - as all commands
    checkpoint = read(place(options.uri))
    sources = list(enumerate(checkpoint.sources))
    if options.source is not None:
        sources = sources[options.source : options.source + 1]
        if not sources:
            raise UsageError(f"the query has {len(checkpoint.sources)} sources: --source counts from 0")
    kafka = [each for _, each in sources if each]
    topics = [topic for each in kafka for topic in {topic for topic, _ in each}]
    if len(topics) > len(set(topics)):
        raise UsageError("several sources of the query read the same topic: choose one with --source N")
    offsets = {key: at for key, at in merged(kafka).items() if not options.topic or key[0] in options.topic}
    if not offsets:
        why = "; ".join(each.text for each in checkpoint.findings) or "no Kafka source has read anything"
        raise CheckpointUnusable(f"there are no offsets to export: {clean(why)}")
    echo(starting_offsets(offsets))
    again = (
        f", batch {checkpoint.planned}, which was planned and is read again" if checkpoint.repeated is not None else ""
    )
    sys.stderr.write(
        f"up to batch {checkpoint.committed}; left behind: state, watermark, batch numbers{again}; Spark takes "
        "startingOffsets only with a new checkpointLocation\n"
    )
