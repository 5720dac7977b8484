"""Generate the CustomResourceDefinition of JobSet (`--write`), or fail when it is stale (`--check`)."""

import sys
from pathlib import Path

from pykueue.api.crds.generated_files import write_or_check
from pykueue.embedded.jobset.definition import DATA
from pykueue.embedded.jobset.generate import generate

if __name__ == "__main__":
    sys.exit(write_or_check("pykueue.embedded.jobset", Path(__file__).with_name(DATA), generate))
