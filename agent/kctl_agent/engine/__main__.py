"""`python -m kctl_agent.engine`: see `kctl_agent.engine.main`."""

from kctl_agent.engine.main import main
from kctl_agent.process.bootstrap import leave

leave(main())
