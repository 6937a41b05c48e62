"""The parts of a demo beside Python packages: checks for Java, the locked jars; and whether the processes that it has
started still run."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.util import find_spec

from kctl.demo.fleet import DemoFleet
from kctl.errors import StartError
from kctl.jars.fetcher import fetch
from kctl.jars.java import java_command
from kctl.jars.fetcher import shown_on
from kctl.master.exit_reasons import cause
from kctl.testing.kafka_broker import KafkaBroker
from kctl_agent.storage.kinds import KINDS


class PartEnded(Exception):
    """A process that the demo has started has ended by itself; the message names it, its pid and how it ended."""


@dataclass(frozen=True, slots=True)
class DemoParts:
    """The processes of a demo. One that was not started yet, or was stopped by the demo, has not ended by itself."""

    broker: KafkaBroker
    master: DemoFleet

    def ended(self) -> str | None:
        """Returns the first process that has ended by itself, in a sentence; the others depend on those before them."""
        if (code := self.broker.ended()) is not None:
            return f"the broker (pid {self.broker.pid}) has ended: {cause(code)}"
        if (code := self.master.ended()) is not None:
            return f"the master (pid {self.master.pid}) has ended: {cause(code)}; its log: {self.master.last_lines()}"
        return None

    def check(self) -> None:
        """Refuses to go on without a part of the demo. Raises PartEnded."""
        if (ended := self.ended()) is not None:
            raise PartEnded(ended)


def bring_parts(storage: str) -> None:
    """Fetches the jars that are missing, with progress on stderr; at once when nothing is missing. Raises StartError:
    what cannot be fetched is missing; its JavaMissing and JarsMissing likewise."""
    if KINDS[storage].is_table and find_spec("deltalake") is None:
        raise StartError("`--storage lake` needs deltalake: pip install deltalake, or leave `--storage lake` away")
    java_command()
    with shown_on(sys.stderr) as progress:
        fetch(progress=progress)
