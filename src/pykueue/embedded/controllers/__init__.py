"""The controllers of the embedded cluster; to them it is just an API server."""

from pykueue.embedded.controllers.manager import Controllers

__all__ = ["Controllers"]
