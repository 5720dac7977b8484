"""Writes the definitions of the group's kinds anew (`--write`), or fails when they are stale (`--check`)."""

import sys
from pathlib import Path

from pykueue.api.crds import DATA
from pykueue.api.crds.generate import generate
from pykueue.api.crds.keeping import keep

if __name__ == "__main__":
    sys.exit(keep("pykueue.api.crds", Path(__file__).with_name(DATA), generate))
