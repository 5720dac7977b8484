"""ServiceAccount: every namespace has `default`, every pod runs as one that exists.

The volume with the account's token is not added: nothing here mounts it.
"""

from __future__ import annotations

from pykueue.embedded.admission.contract import Lookup, Object, pod_refused

DEFAULT = "default"


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
