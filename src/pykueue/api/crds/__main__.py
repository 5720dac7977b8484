"""Write the definitions of the group's kinds (`--write`), or fail when they are stale (`--check`)."""

import sys
from pathlib import Path

from pykueue.api.crds import DATA
from pykueue.api.crds.generate import generate
from pykueue.api.crds.generated_files import write_or_check

if __name__ == "__main__":
    sys.exit(write_or_check("pykueue.api.crds", Path(__file__).with_name(DATA), generate))
