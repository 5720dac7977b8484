"""Simulated nodes: declared, not found; they run pods by what manifests and annotations say of them."""

from pykueue.embedded.nodes.simulated import SimulatedNodes

__all__ = ["SimulatedNodes"]
