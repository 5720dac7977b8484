"""Certificates with their keys for the ssl module, which takes them only from a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def certificate_file(data: bytes) -> Iterator[str]:
    """A path where the library finds `data`: in memory where the system can do that, else a private file."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("certificate")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{handle}"
        return
    import tempfile  # with modules for archives

    with tempfile.NamedTemporaryFile() as temporary:
        temporary.write(data)
        temporary.flush()
        yield temporary.name
