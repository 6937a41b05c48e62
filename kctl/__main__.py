"""`python -m kctl`"""

from __future__ import annotations

import sys

from kctl.cli import main

sys.exit(main())
