"""`python -m kctl_agent.engine`: see `kctl_agent.engine.main`."""

from __future__ import annotations

import os
import sys

from kctl_agent.engine.main import main

code = main()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)  # Spark's threads must not keep an engine that has ended
