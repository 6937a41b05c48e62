"""`python -m kctl_agent.worker`: see `kctl_agent.worker.main`."""

from __future__ import annotations

import os
import sys

from kctl_agent.worker.main import main

code = main()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)  # Spark's and kafka-python's threads must not keep a worker that has left the group
