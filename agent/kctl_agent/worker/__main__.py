"""`python -m kctl_agent.worker`: see `kctl_agent.worker.main`."""

from kctl_agent.process.bootstrap import leave
from kctl_agent.worker.main import main

leave(main())
