"""Reasons why kafka-python's producer tries again: it reports them in its log alone."""

from __future__ import annotations

import logging

__all__ = ["RetryReasons"]


class RetryReasons(logging.Handler):
    """A log handler for the producer's log: when the time is over, its error is a timeout, whatever the broker had
    answered each time. `close` it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last: BaseException | None = None
        self._log = logging.getLogger("kafka.producer.sender")
        self._former_level = self._log.level
        self._log.setLevel(logging.WARNING)  # also where kafka-python as a whole was silenced in this process
        self._log.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        from kafka import errors

        for argument in record.args if isinstance(record.args, tuple) else ():
            kind = getattr(errors, str(argument), None)
            if isinstance(kind, type) and issubclass(kind, errors.BrokerResponseError):
                self.last = kind()

    def close(self) -> None:
        self._log.removeHandler(self)
        self._log.setLevel(self._former_level)
        super().close()
