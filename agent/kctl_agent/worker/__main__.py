"""`python -m kctl_agent.worker`: see `main`."""

from kctl_agent.process.bootstrap import leave
from kctl_agent.worker.main import main

leave(main())
