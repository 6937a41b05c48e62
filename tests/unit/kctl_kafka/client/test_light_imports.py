"""The shortened import of kafka-python, each time in a Python of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

USE = """
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.groups import list_groups
import kafka
from kafka.protocol.admin import CreateTopicsRequest, ListGroupsRequest
print(kafka.KafkaConsumer.__name__, CreateTopicsRequest.__name__, ListGroupsRequest.__name__)
"""


def printed(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.shows("`kctl kafka lag` imports only what it needs")
def test_only_what_is_needed_is_imported() -> None:
    program = "from kctl.kafka.client import light_imports; light_imports.install(); import sys; print(*sys.modules)"

    imported = printed(program).split()

    assert "kafka.net.manager" in imported
    needless = {"kafka.consumer", "kafka.producer", "kafka.admin", "kafka.protocol.admin.acl", "kafka.net.sasl.scram"}
    assert not needless & set(imported)
    assert not {"_ssl", "kafka.metrics", "lzma"} & set(imported)  # of modules that only stand in


def test_what_stands_in_is_executed_by_a_use_of_its_names_and_by_a_start_of_threads() -> None:
    program = """
from kctl.kafka.client import light_imports; light_imports.install()
import ssl, sys, traceback
print("_ssl" in sys.modules, issubclass(ssl.SSLError, OSError), ssl.create_default_context().check_hostname)
print(type(traceback).__name__, traceback.format_exception_only(ValueError("x")))
light_imports.complete()
print({type(sys.modules[name]).__name__ for name in light_imports._RARELY_USED})
from kafka.net.metrics import KafkaConnectionMetrics
from kafka.metrics import Metrics
print(type(KafkaConnectionMetrics(Metrics(), "group", "node")).__name__)
"""

    assert printed(program).splitlines() == [
        "False True True",
        "_StandIn ['ValueError: x\\n']",
        "{'module'}",
        "KafkaConnectionMetrics",
    ]


def test_a_mechanism_of_sasl_is_there_when_it_is_asked_for() -> None:
    program = """
from kctl.kafka.client import light_imports; light_imports.install()
from kafka.net.connection import get_sasl_mechanism
import kafka.net.sasl
print(*(get_sasl_mechanism(name).__name__ for name in ("SCRAM-SHA-256", "PLAIN")))
print(get_sasl_mechanism is not kafka.net.sasl.get_sasl_mechanism)
"""

    assert printed(program).split() == ["SaslMechanismScram", "SaslMechanismPlain", "True"]


@pytest.mark.parametrize(
    "otherwise",
    [
        pytest.param("", id="as it is"),
        pytest.param("light_imports._ADMIN_PARTS = light_imports._CONSUMER_PARTS = ('nowhere',)", id="a part is gone"),
        pytest.param("light_imports._StandIn.__getattr__ = lambda *_: 1 / 0", id="a package that cannot stand in"),
        pytest.param("light_imports._stand_in = lambda: (sys.modules.update(kafka=None), 1 / 0)", id="half done"),
    ],
)
def test_every_name_is_there_also_when_kafka_python_is_put_together_otherwise(otherwise: str) -> None:
    program = f"import sys; from kctl.kafka.client import light_imports; {otherwise}\nlight_imports.install()\n{USE}"

    assert printed(program).split() == ["KafkaConsumer", "CreateTopicsRequest", "ListGroupsRequest"]
