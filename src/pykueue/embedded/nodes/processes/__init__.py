"""Nodes that run containers as processes of this machine: no images, and no sandbox."""

from pykueue.embedded.nodes.processes.logs import ProcessLogs
from pykueue.embedded.nodes.processes.nodes import ProcessNodes

__all__ = ["ProcessLogs", "ProcessNodes"]
