"""kafka-python without what a question to a broker does not need, which is a third of its 120 ms of import.

`import kafka` makes consumer, producer, admin client and a hundred message classes, whichever part is wanted. Here the
packages stand unexecuted: their submodules can be imported one by one, and whoever asks for one of their names gets the
whole package after all, as if it had been imported at once.
"""

from __future__ import annotations

import logging
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any

__all__ = ["install"]


def install() -> None:
    """Call it before anything of kafka-python is imported; afterwards it does nothing."""
    if "kafka" in sys.modules:
        return
    sys.modules["kafka"] = _Package("kafka")
    logging.getLogger("kafka").addHandler(logging.NullHandler())  # as its __init__ does
    import kafka.errors  # kafka-python itself says `from kafka import errors`, which is to find it
    import kafka.protocol

    admin = _Package("kafka.protocol.admin", ("groups",))
    sys.modules[admin.__name__] = kafka.protocol.admin = admin


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

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        from importlib import import_module

        for part in self.__dict__["_parts"]:
            module = import_module(f"{self.__name__}.{part}")
            if name in module.__all__:
                return getattr(module, name)
        self.__dict__["_parts"] = ()
        self.__class__ = ModuleType  # type: ignore[assignment]  # from here on a package like any other
        self.__dict__["_execute"](self)
        return getattr(self, name)
