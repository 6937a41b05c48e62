"""kafka-python without what a question to a broker does not need, which is a third of its 120 ms of import.

`import kafka` makes consumer, producer, admin client and a hundred message classes, whichever part is wanted. Here the
packages stand unexecuted: their submodules can be imported one by one, and whoever asks for one of their names gets the
whole package after all, as if it had been imported at once. With a kafka-python that is put together otherwise all is
imported as ever: slower, not wrong.
"""

from __future__ import annotations

import logging
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any

__all__ = ["install"]

_ADMIN_PARTS = ("groups",)
_CONSUMER_PARTS = ("offsets", "group")


def install() -> None:
    """Call it before anything of kafka-python is imported; afterwards it does nothing."""
    if "kafka" in sys.modules:
        return
    known = set(sys.modules)
    try:
        _stand_in()
        import kctl.kafka.connection  # noqa: F401 - all that every question needs is imported, or found not to be so
    except Exception:  # whatever a later kafka-python does at its import
        for name in set(sys.modules) - known:
            if name.startswith(("kafka", "kctl.kafka.")):
                del sys.modules[name]


def _stand_in() -> None:
    _Package("kafka")
    logging.getLogger("kafka").addHandler(logging.NullHandler())  # as its __init__ does
    import kafka.errors  # kafka-python itself says `from kafka import errors`, which is to find it
    import kafka.protocol

    kafka.protocol.admin = _Package("kafka.protocol.admin", _ADMIN_PARTS)
    kafka.protocol.consumer = _Package("kafka.protocol.consumer", _CONSUMER_PARTS)
    kafka.net = _Package("kafka.net")
    kafka.net.sasl = sasl = _Package("kafka.net.sasl")
    sasl.__dict__["get_sasl_mechanism"] = lambda mechanism: _executed(sasl).get_sasl_mechanism(mechanism)


class _Package(ModuleType):
    """A package whose `__init__` runs when one of its names is missed, unless `parts` (submodules) have it."""

    def __init__(self, name: str, parts: tuple[str, ...] = ()) -> None:
        super().__init__(name)
        spec = find_spec(name)
        if spec is None or spec.loader is None or spec.submodule_search_locations is None:
            raise ImportError(f"there is no package {name}")
        self.__spec__ = spec
        self.__loader__ = spec.loader
        self.__package__ = name
        self.__file__ = spec.origin
        self.__path__ = list(spec.submodule_search_locations)
        self.__dict__["_parts"] = parts
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


def _executed(package: ModuleType) -> ModuleType:
    """The package; from here on it is one like any other."""
    if isinstance(package, _Package):
        execute = package.__dict__["_execute"]
        package.__class__ = ModuleType  # type: ignore[assignment]
        execute(package)
    return package
