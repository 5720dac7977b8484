"""What the manager answers: probes, metrics, profiles, admission reviews and conversions."""

from .servers import Serving
from .tls import ServingTls

__all__ = ["Serving", "ServingTls"]
