"""Why a command of the plugin cannot be carried out."""

from __future__ import annotations


class PluginError(ValueError):
    """A wrong flag, argument or template; the message is one line for the user."""
