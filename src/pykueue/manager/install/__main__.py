"""Writes the Helm chart again (`--write`), or fails when it is not what the manifests say (`--check`)."""

import sys
from pathlib import Path

from pykueue.api.crds.generated_files import write_or_check_files
from pykueue.manager.install.chart import files

#: In a checkout of the sources.
CHART = Path(__file__).parents[4] / "charts" / "pykueue"

if __name__ == "__main__":
    wanted = {CHART / path: text.encode() for path, text in files().items()}
    sys.exit(write_or_check_files("pykueue.manager.install", wanted))
