"""What every storage guarantees, as pytest classes: the suite that ours pass, for an implementation of your own.

Needs pytest. In a test module of yours, with a fixture for a prepared, empty storage whose blocks hold at most three
messages, one that makes the storage's clock go on, and one that overwrites a block's bytes:

    from kctl_agent.storage.conformance import Claims, DeadLetters, Order, Puts, Times

    @pytest.fixture
    def storage(): ...

    @pytest.fixture
    def pass_time(storage): return lambda seconds: ...

    @pytest.fixture
    def damage(storage): return lambda first_offset: ...

    class TestPuts(Puts): ...
    class TestClaims(Claims): ...
"""

from __future__ import annotations

from kctl_agent.storage.conformance.claims import Claims
from kctl_agent.storage.conformance.dead_letters import DeadLetters
from kctl_agent.storage.conformance.order import Order
from kctl_agent.storage.conformance.puts import Puts
from kctl_agent.storage.conformance.times import Times

__all__ = ["Claims", "DeadLetters", "Order", "Puts", "Times"]
