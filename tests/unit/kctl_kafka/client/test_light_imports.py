from __future__ import annotations

import subprocess
import sys


def printed(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_only_what_is_needed_is_imported() -> None:
    program = "from kctl.kafka.client import light_imports; light_imports.install(); import sys; print(*sys.modules)"

    imported = printed(program).split()

    assert "kafka.net.manager" in imported
    needless = {"kafka.consumer", "kafka.producer", "kafka.admin", "kafka.protocol.admin.acl", "kafka.net.sasl.scram"}
    assert not needless & set(imported)
    assert not {"_ssl", "kafka.metrics", "lzma"} & set(imported)  # modules replaced by stubs


def test_a_mechanism_of_sasl_is_there_when_it_is_asked_for() -> None:
    program = """
from kctl.kafka.client import light_imports; light_imports.install()
from kafka.net.connection import get_sasl_mechanism
import kafka.net.sasl
print(*(get_sasl_mechanism(name).__name__ for name in ("SCRAM-SHA-256", "PLAIN")))
print(get_sasl_mechanism is not kafka.net.sasl.get_sasl_mechanism)
"""

    assert printed(program).split() == ["SaslMechanismScram", "SaslMechanismPlain", "True"]
