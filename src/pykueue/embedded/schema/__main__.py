"""Copy the published definitions of the built-in kinds (`--write`), or fail when they are stale (`--check`).

The package kubernetes-validate has them as JSON Schema for 13 versions of Kubernetes, 108 MB; one version,
compressed, is what an installation needs.
"""

import gzip
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import orjson

from pykueue.api.crds.generated_files import write_or_check_files
from pykueue.embedded.schema.definitions import DATA, KUBERNETES_VERSION


def published() -> Any:
    """The definitions by full name, as the package kubernetes-validate has them."""
    path = f"kubernetes-json-schema/v{KUBERNETES_VERSION}.0-local/_definitions.json"
    return orjson.loads(resources.files("kubernetes_validate").joinpath(path).read_bytes())["$defs"]


def compressed(path: Path, content: bytes) -> bytes:
    """The content compressed: as the file has it where it is the same, whatever version of zlib wrote it."""
    if path.exists() and gzip.decompress(path.read_bytes()) == content:
        return path.read_bytes()
    return gzip.compress(content, compresslevel=9, mtime=0)


if __name__ == "__main__":
    file = Path(__file__).with_name(DATA)
    fresh = compressed(file, orjson.dumps(published(), option=orjson.OPT_SORT_KEYS))
    sys.exit(write_or_check_files("pykueue.embedded.schema", {file: fresh}))
