"""`kctl storage status`"""

from __future__ import annotations

from kctl.cli.options import ConfigOption, OutputOption
from kctl.cli.output import as_text, echo
from kctl.cli.storage.fleet_storage import load_fleet
from kctl.cli.storage.tables import status_document, status_lines, table_document, table_lines
from kctl.dead_letters.storage import opened, opened_lake


def status(config: ConfigOption = None, output: OutputOption = "table") -> None:
    """Count messages by state; of a table its rows, files and bytes."""
    fleet = load_fleet(config)
    if fleet.storage.kind.is_table:
        with opened_lake(fleet) as lake:
            document = table_document(lake, fleet.kafka.group)
        echo("\n".join(table_lines(document, fleet.kafka.group)) if output == "table" else as_text(document, output))
        return
    with opened(fleet) as storage:
        stats = storage.stats()
        identity = storage.identity
    if output == "table":
        echo("\n".join(status_lines(identity, stats)))
    else:
        document = status_document(identity, stats)
        echo(as_text(document, output))
