"""Job queueing for Kubernetes that speaks Kueue's API."""

__version__: str
"""The installed version, such as `0.1.0`."""


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Read when it is asked for: the module for it takes 7 MB and 50 ms.
    from importlib.metadata import version

    return version("pykueue")
