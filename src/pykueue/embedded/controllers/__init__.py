"""The controllers of the embedded cluster; to them it is just an API server."""

from pykueue.embedded.controllers.manager import CLUSTER_PACE, Controllers, Pace

__all__ = ["CLUSTER_PACE", "Controllers", "Pace"]
