"""Imports only the parts of kafka-python that a request to a broker needs. This saves 40 ms.

Stand-ins replace some packages of kafka-python, so importing a submodule does not execute the package's `__init__.py`.
They also replace rarely used standard modules. A stand-in executes its module only when needed.
"""

import sys
from functools import partial
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_RARELY_USED = ("ssl", "tempfile", "traceback", "zipfile")
"""Used only for TLS, by importlib.resources and by logging. (`importlib.util.LazyLoader` would execute a module at its
second import.)"""


def install() -> None:
    """Installs the stand-ins. Call it before anything imports kafka-python."""
    if "kafka" in sys.modules:
        return
    known = set(sys.modules)
    try:
        _stand_in()
        import kctl.kafka.client.connection  # noqa: F401 - imports everything that a question needs, or fails here
    except Exception:  # whatever a later kafka-python raises at its import
        for name in set(sys.modules) - known:
            if name.startswith(("kafka", "kctl.kafka.")):
                del sys.modules[name]


def complete() -> None:
    """Executes the rarely used modules. Call it before starting threads: two threads could execute a module twice."""
    for name in _RARELY_USED:
        if name in sys.modules:
            _executed(sys.modules[name])


def _stand_in() -> None:
    for name in _RARELY_USED:
        if name not in sys.modules:
            _StandIn(name)
    import logging  # imports `traceback`

    _StandIn("kafka")
    logging.getLogger("kafka").addHandler(logging.NullHandler())  # as kafka's __init__ does
    import kafka.errors  # kafka-python itself runs `from kafka import errors`, which must find it
    import kafka.protocol

    kafka.protocol.admin = _StandIn("kafka.protocol.admin", ("groups",))
    kafka.protocol.consumer = _StandIn("kafka.protocol.consumer", ("offsets", "group"))
    kafka.net = _StandIn("kafka.net")
    kafka.net.sasl = _StandIn("kafka.net.sasl", callables=("get_sasl_mechanism",))
    kafka.net.metrics = _StandIn("kafka.net.metrics", callables=("KafkaConnectionMetrics", "KafkaManagerMetrics"))


class _StandIn(ModuleType):
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
        # Importing these names does not execute the module, but a call does.
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
    if isinstance(module, _StandIn):
        execute = module.__dict__["_execute"]
        # A normal module by its class, so that existing references need no `__getattr__`.
        module.__class__ = ModuleType  # type: ignore[assignment]
        execute(module)
    return module


def _call(module: ModuleType, name: str, *arguments: Any, **named: Any) -> Any:
    return getattr(_executed(module), name)(*arguments, **named)
