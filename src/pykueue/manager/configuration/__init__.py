"""The configuration file: `config.kueue.x-k8s.io` v1beta2 and v1beta1 (docs/reference/kueue-api.md 3)."""

from pykueue.api.durations import format_duration, parse_duration

from .gates import FeatureGates
from .loading import ConfigurationError, load, parse, render
from .tls import TLS_CIPHERS, TLS_CURVES
from .types import Configuration, RequeuingStrategy, Tls, WaitForPodsReady

__all__ = [
    "TLS_CIPHERS",
    "TLS_CURVES",
    "Configuration",
    "ConfigurationError",
    "FeatureGates",
    "RequeuingStrategy",
    "Tls",
    "WaitForPodsReady",
    "format_duration",
    "load",
    "parse",
    "parse_duration",
    "render",
]
