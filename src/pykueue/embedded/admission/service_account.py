"""ServiceAccount: every namespace has `default`, every pod runs as one that exists and is given its token.

The token comes by a volume that holds it, the server's certificate and the namespace, mounted where client
libraries look for it. Source: the Kubernetes documentation of ServiceAccount admission.
"""

from __future__ import annotations

from typing import Any, Final

from pykueue.api.objects import Object
from pykueue.embedded.admission.contract import Lookup, pod_refused

DEFAULT = "default"
#: The ConfigMap in every namespace with the certificate of the server's authority.
ROOT_CA: Final = "kube-root-ca.crt"
#: Prefix of the volume's name; random characters follow.
TOKEN_VOLUME: Final = "kube-api-access-"

_MOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
#: Seconds a token is good for. The value by which a cluster recognizes the tokens it mounts itself.
_TOKEN_LIFE: Final = 3607
_PROJECTED: Final[Object] = {
    "defaultMode": 420,
    "sources": [
        {"serviceAccountToken": {"expirationSeconds": _TOKEN_LIFE, "path": "token"}},
        {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [
                    {
                        "path": "namespace",
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                    }
                ]
            }
        },
    ],
}


def use_service_account(pod: Object, lookup: Lookup) -> Object:
    """The pod with its ServiceAccount named. 403 when there is no such account."""
    spec = pod["spec"]
    name = spec.get("serviceAccountName") or DEFAULT
    namespace = pod["metadata"]["namespace"]
    account = lookup.find("", "serviceaccounts", namespace, name)
    if account is None:
        raise pod_refused(
            pod, f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        )
    changed = {**spec, "serviceAccountName": name, "serviceAccount": name}
    secrets = account.get("imagePullSecrets")
    if secrets and not spec.get("imagePullSecrets"):
        changed["imagePullSecrets"] = secrets
    return pod if changed == spec else {**pod, "spec": changed}


def mount_token(pod: Object, lookup: Lookup, volume: str) -> Object:
    """The pod with a volume of the given name for its account's token, where it does not decline it.

    A container that already mounts something at the path keeps that mount.
    """
    spec = pod["spec"]
    wanted = spec.get("automountServiceAccountToken")
    if wanted is None:
        name = spec.get("serviceAccountName") or DEFAULT
        account = lookup.find("", "serviceaccounts", pod["metadata"]["namespace"], name) or {}
        wanted = account.get("automountServiceAccountToken")
    if wanted is False:
        return pod
    volumes = spec.get("volumes") or []
    given = [one["name"] for one in volumes if str(one.get("name")).startswith(TOKEN_VOLUME)]
    mount = {"name": given[0] if given else volume, "readOnly": True, "mountPath": _MOUNT_PATH}
    changed: dict[str, Any] = {}
    for field in ("initContainers", "containers"):
        containers = spec.get(field)
        if containers and any(not _mounts(one) for one in containers):
            changed[field] = [one if _mounts(one) else _with_mount(one, mount) for one in containers]
    if not changed:
        return pod
    if not given:
        changed["volumes"] = [*volumes, {"name": volume, "projected": _PROJECTED}]
    return {**pod, "spec": {**spec, **changed}}


def _mounts(container: Object) -> bool:
    return any(one.get("mountPath") == _MOUNT_PATH for one in container.get("volumeMounts") or ())


def _with_mount(container: Object, mount: Object) -> Object:
    return {**container, "volumeMounts": [*(container.get("volumeMounts") or ()), mount]}
