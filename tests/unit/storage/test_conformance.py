from tests.conformance import Claims, DeadLetters, Puts


class TestPuts(Puts): ...


class TestClaims(Claims): ...


class TestDeadLetters(DeadLetters): ...
