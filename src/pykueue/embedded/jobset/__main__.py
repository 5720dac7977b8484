"""Writes the definition of JobSet anew (`--write`), or fails when it is stale (`--check`)."""

import sys
from pathlib import Path

from pykueue.api.crds.keeping import keep
from pykueue.embedded.jobset.definition import DATA
from pykueue.embedded.jobset.generate import generate

if __name__ == "__main__":
    sys.exit(keep("pykueue.embedded.jobset", Path(__file__).with_name(DATA), generate))
