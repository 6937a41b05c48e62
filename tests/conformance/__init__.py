"""What every storage guarantees, as pytest classes: a kind of storage has a file of tests that subclasses them.

A `Storage` needs a fixture for a prepared, empty one whose blocks hold at most three messages (`storage`), one that
makes its clock go on (`pass_time`), and one that overwrites a block's bytes (`damage`): see tests/unit/storage.

`Puts` holds all of `StoredOffsets`, and `DeadLetters` all of `Dead`. These two are what an `OffsetStore` and a
`DeadLetterStore` guarantee where no message waits, such as tables: of a subclass its `plan` and `stored`, or `kill` and
`again`, are how messages come into such a store and are read in it (tests/table_conformance.py).
"""

from tests.conformance.claims import Claims
from tests.conformance.dead import Dead
from tests.conformance.dead_letters import DeadLetters
from tests.conformance.offsets import StoredOffsets
from tests.conformance.puts import Puts

__all__ = ["Claims", "Dead", "DeadLetters", "Puts", "StoredOffsets"]
