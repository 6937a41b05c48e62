"""What every storage guarantees, as pytest classes: the suite that ours pass, for an implementation of your own.

Needs pytest. For a `Storage`, in a test module of yours, with a fixture for a prepared, empty storage whose blocks hold
at most three messages, one that makes the storage's clock go on, and one that overwrites a block's bytes:

    from kctl_agent.storage.conformance import Claims, DeadLetters, Order, Puts, Times

    @pytest.fixture
    def storage(): ...

    @pytest.fixture
    def pass_time(storage): return lambda seconds: ...

    @pytest.fixture
    def damage(storage): return lambda first_offset: ...

    class TestPuts(Puts): ...
    class TestClaims(Claims): ...

`Puts` holds all of `StoredOffsets`, and `DeadLetters` all of `Dead`. These two are what an `OffsetStore` and a
`DeadLetterStore` guarantee where no message waits, such as tables: of a subclass its `plan` and `stored`, or `kill` and
`again`, are how messages come into such a store and are read in it.

    class TestOffsets(Offsets[Table]):
        def plan(self, storage, chunk): ...
        def stored(self, storage): ...
"""

from __future__ import annotations

from kctl_agent.storage.conformance.claims import Claims
from kctl_agent.storage.conformance.dead import Dead
from kctl_agent.storage.conformance.dead_letters import DeadLetters
from kctl_agent.storage.conformance.offsets import StoredOffsets
from kctl_agent.storage.conformance.order import Order
from kctl_agent.storage.conformance.puts import Puts
from kctl_agent.storage.conformance.times import Times

__all__ = ["Claims", "Dead", "DeadLetters", "Order", "Puts", "StoredOffsets", "Times"]
