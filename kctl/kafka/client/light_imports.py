"""A lighter import of kafka-python, without what a question to a broker does not need, a third of its 120 ms.

`import kafka` makes consumer, producer, admin client and a hundred message classes, whichever part is wanted. Here the
packages stand unexecuted: their submodules can be imported one by one, and a module that asks for one of their names
gets the whole package after all, as if it had been imported at once. So do modules of the standard library that are
imported at the top of others and used in rare cases. One that is executed after all becomes a module like any other by
its class, as `importlib.util.LazyLoader` does it: a module that holds it already pays no `__getattr__` any more. With a
kafka-python that is put together otherwise all is imported as ever: slower, not wrong.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_ADMIN_PARTS = ("groups",)
_CONSUMER_PARTS = ("offsets", "group")
_RARELY_USED = ("ssl", "tempfile", "traceback", "zipfile")
"""Modules that are needed for TLS, by importlib.resources and by logging. (`importlib.util.LazyLoader` executes a
module as soon as it is imported a second time.)"""


def install() -> None:
    """Installs stand-ins, before anything of kafka-python is imported; afterwards it does nothing."""
    if "kafka" in sys.modules:
        return
    known = set(sys.modules)
    try:
        _stand_in()
        import kctl.kafka.client.connection  # noqa: F401 - all that every question needs is imported, or found not to be so
    except Exception:  # whatever a later kafka-python does at its import
        for name in set(sys.modules) - known:
            if name.startswith(("kafka", "kctl.kafka.")):
                del sys.modules[name]


def complete() -> None:
    """Executes what stands in for a module of the standard library: before there are other threads, for two that use it
    for the first time in the same moment would execute it twice."""
    for name in _RARELY_USED:
        if name in sys.modules:
            _executed(sys.modules[name])


def _stand_in() -> None:
    for name in _RARELY_USED:
        if name not in sys.modules:
            _StandIn(name)
    import logging  # it imports `traceback`

    _StandIn("kafka")
    logging.getLogger("kafka").addHandler(logging.NullHandler())  # as its __init__ does
    import kafka.errors  # kafka-python itself runs `from kafka import errors`, which is to find it
    import kafka.protocol

    kafka.protocol.admin = _StandIn("kafka.protocol.admin", _ADMIN_PARTS)
    kafka.protocol.consumer = _StandIn("kafka.protocol.consumer", _CONSUMER_PARTS)
    kafka.net = _StandIn("kafka.net")
    kafka.net.sasl = _StandIn("kafka.net.sasl", callables=("get_sasl_mechanism",))
    kafka.net.metrics = _StandIn("kafka.net.metrics", callables=("KafkaConnectionMetrics", "KafkaManagerMetrics"))


class _StandIn(ModuleType):
    """A module or package that is executed when one of its names is missed, unless `parts` (submodules) have it.

    `callables` are names that others take out of it at their own import; it is executed when they are called.
    """

    def __init__(self, name: str, parts: tuple[str, ...] = (), callables: tuple[str, ...] = ()) -> None:
        super().__init__(name)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            raise ImportError(f"there is no module {name}")
        self.__spec__ = spec
        self.__loader__ = spec.loader
        self.__package__ = spec.parent
        self.__file__ = spec.origin
        if spec.submodule_search_locations is not None:
            self.__path__ = list(spec.submodule_search_locations)
        self.__dict__["_parts"] = parts
        self.__dict__.update({each: partial(_call, self, each) for each in callables})
        self.__dict__["_execute"] = spec.loader.exec_module
        sys.modules[name] = self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        from importlib import import_module

        for part in self.__dict__["_parts"]:
            try:
                module = import_module(f"{self.__name__}.{part}")
            except ImportError:
                continue
            if name in getattr(module, "__all__", ()):
                return getattr(module, name)
        return getattr(_executed(self), name)


def _executed(module: ModuleType) -> ModuleType:
    """Executes a module and returns it; from here on it is one like any other."""
    if isinstance(module, _StandIn):
        execute = module.__dict__["_execute"]
        module.__class__ = ModuleType  # type: ignore[assignment]
        execute(module)
    return module


def _call(module: ModuleType, name: str, *arguments: Any, **named: Any) -> Any:
    return getattr(_executed(module), name)(*arguments, **named)
