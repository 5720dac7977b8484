"""The manager as a list of components: what a component is, and the declaration of each.

Declarations import the controllers and no controller imports them, so that controllers know nothing of how
they are put together. See docs/decisions/0010-components.md.
"""

from .component import Component, Context, Runnable, rules

__all__ = ["Component", "Context", "Runnable", "rules"]
