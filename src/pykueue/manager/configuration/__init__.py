"""The configuration file: `config.kueue.x-k8s.io` v1beta2 and v1beta1 (reference/kueue-api.md 3)."""

from .duration import format_duration, parse_duration
from .gates import FeatureGates
from .loading import ConfigurationError, load, parse, render
from .types import Configuration, RequeuingStrategy, WaitForPodsReady

__all__ = [
    "Configuration",
    "ConfigurationError",
    "FeatureGates",
    "RequeuingStrategy",
    "WaitForPodsReady",
    "format_duration",
    "load",
    "parse",
    "parse_duration",
    "render",
]
