"""What all installed objects have in common."""

from __future__ import annotations

from pykueue.api.objects import Object

from .options import Options


def selector(options: Options) -> dict[str, str]:
    """The labels by which the manager's pods are found."""
    return {"app.kubernetes.io/name": options.names.base, "control-plane": "controller-manager"}


def labelled(options: Options, obj: Object, component: str = "controller") -> Object:
    """The object with the labels by which an installation is found, beside those it has."""
    metadata = obj["metadata"]
    labels = {**selector(options), "app.kubernetes.io/component": component, **metadata.get("labels", {})}
    return {**obj, "metadata": {**metadata, "labels": labels}}
