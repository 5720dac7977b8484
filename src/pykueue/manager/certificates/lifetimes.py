"""How long certificates of the manager are valid, and how they reach its servers.

Apart from what makes certificates: the library for that is imported only where one is made.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

#: How long an authority and a serving certificate are valid, and how long before their end they are renewed.
AUTHORITY_VALIDITY, AUTHORITY_RENEWAL = timedelta(days=3650), timedelta(days=365)
SERVING_VALIDITY, SERVING_RENEWAL = timedelta(days=365), timedelta(days=90)

#: The authority's common name.
AUTHORITY_NAME = "kueue-ca"

#: Takes a certificate and its key, PEM.
Use = Callable[[bytes, bytes], None]
