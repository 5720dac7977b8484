"""The fault runs use the stacks of other tests."""

from __future__ import annotations

import sys
from pathlib import Path

for part in ("manager", "embedded"):
    sys.path.insert(0, str(Path(__file__).parent.parent / part))
