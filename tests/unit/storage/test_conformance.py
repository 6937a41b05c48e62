from __future__ import annotations

from tests.conformance import Claims, DeadLetters, Order, Puts, Times


class TestPuts(Puts): ...


class TestClaims(Claims): ...


class TestTimes(Times): ...


class TestOrder(Order): ...


class TestDeadLetters(DeadLetters): ...
