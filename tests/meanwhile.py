"""What runs in its own thread while a test runs: a repeated turn, and a server."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from socketserver import BaseServer
from time import monotonic
from typing import Self


class Meanwhile(ABC):
    """Takes turns inside its block. `wrong` collects errors, which do not prevent further turns."""

    def __init__(self, pause_seconds: float = 0.0) -> None:
        self.wrong: list[object] = []
        self.turns = 0
        self._pause_seconds = pause_seconds
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @abstractmethod
    def turn(self) -> None:
        """One turn."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(self._pause_seconds):
            try:
                self.turn()
            except Exception as error:
                self.wrong.append(error)
            self.turns += 1


class GoodCaller(Meanwhile):
    """Asks these questions repeatedly. Each returns what is wrong with its answer, or None."""

    def __init__(self, *asks: Callable[[], object | None], pause_seconds: float = 0.0) -> None:
        super().__init__(pause_seconds)
        self.took: list[float] = []  # seconds until each answer
        self._asks = asks

    def turn(self) -> None:
        for ask in self._asks:
            began = monotonic()
            wrong = ask()
            self.took.append(monotonic() - began)
            if wrong is not None:
                self.wrong.append(wrong)


@contextmanager
def serving(server: BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="served by a test")
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
