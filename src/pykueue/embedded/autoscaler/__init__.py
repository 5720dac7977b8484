"""The cluster autoscaler of the embedded cluster."""

from pykueue.embedded.autoscaler.autoscaler import Autoscaler

__all__ = ["Autoscaler"]
