"""`python -m kctl_agent.sinker`: see `kctl_agent.sinker.main`."""

from kctl_agent.process.bootstrap import leave
from kctl_agent.sinker.main import main

leave(main())
