"""`python -m kctl_agent.sinker`: see `kctl_agent.sinker.main`."""

from __future__ import annotations

import os
import sys

from kctl_agent.sinker.main import main

code = main()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)  # a thread that the handler has started must not keep a sinker that has left
