"""Virtual-time runs of the same engine and controllers.

Public: `simulate`, `Simulated`, `figure`, `Outcome`, `ScenarioError` (docs/use/python.md). They are imported
when they are first used, as the parts of this package need different things.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import Simulated, simulate
    from .figures import figure
    from .measures import Outcome
    from .scenario.reading import ScenarioError

__all__ = ["Outcome", "ScenarioError", "Simulated", "figure", "simulate"]

_PLACES = {
    "Outcome": "measures",
    "ScenarioError": "scenario.reading",
    "Simulated": "api",
    "figure": "figures",
    "simulate": "api",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
