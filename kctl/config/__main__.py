"""`python -m kctl.config > docs/configuration.md`"""

from __future__ import annotations

import sys

from kctl.config.reference import reference

sys.stdout.write(reference())
