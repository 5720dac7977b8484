"""The flight recorder: events and decisions of the engine in files, which `pykueue replay` repeats."""

from .component import component
from .files import Limits

__all__ = ["Limits", "component"]
