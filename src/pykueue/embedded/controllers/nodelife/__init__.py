"""What becomes of nodes that fail, and of the pods on them."""

from pykueue.embedded.controllers.nodelife.parts import node_controllers

__all__ = ["node_controllers"]
