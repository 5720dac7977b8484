"""Job queueing for Kubernetes that speaks Kueue's API."""

from importlib.metadata import version

__version__: str = version("pykueue")
"""The installed version, such as `0.1.0`."""
