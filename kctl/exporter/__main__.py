"""`python -m kctl.exporter > docs/metrics.md`"""

from __future__ import annotations

import sys

from kctl.exporter.reference import reference

sys.stdout.write(reference())
