"""Changes of a state: other quota, weights, policies, queues and nodes, or whole manifests.

A change is made of the objects as they are, and refused where the admission rules of the group refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, Final

from msgspec.structs import replace

from pykueue.api import decode, encode, kueue
from pykueue.api.core import Node
from pykueue.api.decoding import DecodeError, decode_as
from pykueue.api.kinds import kind_of
from pykueue.api.model import Model
from pykueue.api.objects import Object, key_of
from pykueue.api.quantity import QuantityError, parse
from pykueue.api.similar import did_you_mean
from pykueue.api.validation import validate_objects
from pykueue.engine import Options, Upsert
from pykueue.engine.events import Event
from pykueue.simulate.futures import State

#: Kind, namespace and name.
Identity = tuple[str, str, str]

_HOSTNAME: Final = "kubernetes.io/hostname"
#: Fields of a ClusterQueue's `spec.preemption`, which a policy may name without it.
_PREEMPTION: Final = frozenset({"withinClusterQueue", "reclaimWithinCohort", "borrowWithinCohort"})


class ChangeError(ValueError):
    """A change names what does not exist, or makes an object that is not valid."""


class ChangedState:
    """A state as it is, and what is changed of it."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._objects: dict[Identity, Model] = {}
        for event in state.objects:
            if isinstance(event, Upsert):
                self._objects[identity_of(event.obj)] = event.obj
        for workload in state.workloads:
            self._objects[identity_of(workload)] = workload
        self._options = state.options
        #: The objects that were changed.
        self.changed: set[Identity] = set()
        #: What was changed, in words.
        self.texts: list[str] = []

    def state(self) -> State:
        """The state with the changes."""
        before = self._state
        workloads = [each for each in self._objects.values() if isinstance(each, kueue.Workload)]
        objects: list[Event] = [
            Upsert(each) for each in self._objects.values() if not isinstance(each, kueue.Workload)
        ]
        return State(self._options, objects, workloads, before.now, before.unread, before.notes)

    def set_options(self, options: Options) -> None:
        """Other options of the manager."""
        self._options = options
        self.texts.append("another configuration")

    def put(self, obj: Model) -> None:
        """An object exists and looks like this; a Workload that exists keeps its status."""
        identity = identity_of(obj)
        before = self._objects.get(identity)
        if isinstance(obj, kueue.Workload) and isinstance(before, kueue.Workload):
            obj = replace(obj, status=before.status)
        _check(obj, before)
        self._objects[identity] = obj
        self.changed.add(identity)
        if before is None or encode(before) != encode(obj):
            self.texts.append(f"{_title(identity)}: {'added' if before is None else 'changed'}")

    def remove_node(self, name: str) -> None:
        """A node is gone. Raises ChangeError for one that does not exist."""
        identity = self._known("Node", "", name)
        del self._objects[identity]
        self.changed.add(identity)
        self.texts.append(f"Node {name}: removed")

    def add_nodes(self, like: str, count: int) -> None:
        """More nodes like one that exists. Raises ChangeError for one that does not."""
        model = self._objects[self._known("Node", "", like)]
        for number in range(1, count + 1):
            manifest = encode(model)
            name = f"{like}-{number}"
            while ("Node", "", name) in self._objects:
                name += "x"
            manifest["metadata"] |= {"name": name, "uid": name}
            labels = manifest["metadata"].get("labels", {})
            if _HOSTNAME in labels:
                labels[_HOSTNAME] = name
            self._objects["Node", "", name] = decode_as(Node, manifest)
        self.texts.append(f"{count} more nodes like {like}")

    def set_quota(self, kind: str, name: str, flavor: str, resource: str, amount: str) -> None:
        """Other nominal quota; an amount with a sign is added to that which is there. Raises ChangeError."""

        def edit(manifest: Object) -> tuple[str, str]:
            found = _quotas(manifest)
            if (flavor, resource) not in found:
                known = ", ".join(f"{one}/{other}" for one, other in found) or "none"
                raise ChangeError(f"{kind} {name} has no quota for {flavor}/{resource}; accepted: {known}")
            quota = found[flavor, resource]
            before = parse(quota["nominalQuota"])
            try:
                value = parse(amount.removeprefix("+"))
            except QuantityError as error:
                raise ChangeError(f"nominalQuota of {kind} {name}: {error}") from None
            after = before + value if amount[:1] in ("+", "-") else value
            if after.nanos < 0:
                raise ChangeError(f"nominalQuota of {kind} {name}: {after} is less than 0")
            quota["nominalQuota"] = str(after)
            return str(before), str(after)

        self._edit(kind, name, f"nominalQuota of {resource} in flavor {flavor}", edit)

    def set_weight(self, name: str, weight: str) -> None:
        """Another weight of a ClusterQueue, or of the Cohort of that name. Raises ChangeError."""
        kind = "ClusterQueue"
        if ("ClusterQueue", "", name) not in self._objects and ("Cohort", "", name) in self._objects:
            kind = "Cohort"

        def edit(manifest: Object) -> tuple[str, str]:
            sharing = manifest.setdefault("spec", {}).setdefault("fairSharing", {})
            before = str(sharing.get("weight", 1))
            sharing["weight"] = weight
            return before, weight

        self._edit(kind, name, "weight", edit)

    def set_stop_policy(self, name: str, policy: str) -> None:
        """Another stop policy of a ClusterQueue, or of a LocalQueue `namespace/name`. Raises ChangeError."""

        def edit(manifest: Object) -> tuple[str, str]:
            spec = manifest.setdefault("spec", {})
            before = str(spec.get("stopPolicy", "None"))
            spec["stopPolicy"] = policy
            return before, policy

        self._edit("LocalQueue" if "/" in name else "ClusterQueue", name, "stopPolicy", edit)

    def set_policy(self, name: str, field: str, value: str) -> None:
        """Another text in a field of a ClusterQueue's spec. Raises ChangeError."""
        path = field.split(".")
        if path[0] in _PREEMPTION:
            path = ["preemption", *path]

        def edit(manifest: Object) -> tuple[str, str]:
            target: Any = manifest.setdefault("spec", {})
            for each in path[:-1]:
                target = target.setdefault(each, {})
                if not isinstance(target, dict):
                    raise ChangeError(
                        f"ClusterQueue {name}: spec.{'.'.join(path)}: there is no such field of text"
                    )
            before = target.get(path[-1], "unset")
            # No field of text accepts an object: one that does is not known, and ignored.
            target[path[-1]] = {"of": "no field"}
            if isinstance(before, dict | list) or _is_decoded(kueue.ClusterQueue, manifest):
                raise ChangeError(
                    f"ClusterQueue {name}: spec.{'.'.join(path)}: there is no such field of text"
                )
            target[path[-1]] = value
            return str(before), value

        self._edit("ClusterQueue", name, ".".join(path), edit)

    def _edit(self, kind: str, key: str, field: str, edit: Callable[[Object], tuple[str, str]]) -> None:
        namespace, _, name = key.rpartition("/")
        identity = self._known(kind, namespace, name)
        before = self._objects[identity]
        manifest = deepcopy(encode(before))
        old, new = edit(manifest)
        try:
            after = decode_as(type(before), manifest)
        except DecodeError as error:
            raise ChangeError(f"{_title(identity)}: {error.why}") from None
        _check(after, before)
        self._objects[identity] = after
        self.changed.add(identity)
        self.texts.append(f"{field} of {_title(identity)}: {old} -> {new}")

    def _known(self, kind: str, namespace: str, name: str) -> Identity:
        identity = (kind, namespace, name)
        if identity not in self._objects:
            known = [_key(each) for each in self._objects if each[0] == kind]
            raise ChangeError(f"{_title(identity)} does not exist{did_you_mean(_key(identity), known)}")
        return identity


#: What is done to a state.
Change = Callable[[ChangedState], None]


def identity_of(obj: Model) -> Identity:
    """Kind, namespace and name of an object."""
    metadata = obj.metadata  # type: ignore[attr-defined]
    return kind_of(obj), metadata.namespace or "", metadata.name


def manifest_identity(manifest: Object) -> Identity:
    """Kind, namespace and name of a manifest."""
    return manifest["kind"], *key_of(manifest)


def decoded(manifests: Iterable[Object]) -> list[Any]:
    """Typed objects of manifests; what has no uid gets one. Raises DecodeError."""
    found = []
    for manifest in manifests:
        metadata = manifest["metadata"]
        if not metadata.get("uid"):
            uid = "/".join(manifest_identity(manifest))
            manifest = {**manifest, "metadata": {**metadata, "uid": uid}}
        found.append(decode(manifest))
    return found


def _is_decoded(type: type[Model], manifest: Object) -> bool:
    try:
        decode_as(type, manifest)
    except DecodeError:
        return False
    return True


def _check(obj: Model, before: Model | None) -> None:
    errors = validate_objects(obj, before if type(before) is type(obj) else None)
    if errors:
        title = _title(identity_of(obj))
        raise ChangeError("\n".join(f"{title}: {error.path}: {error.message}" for error in errors))


def _quotas(manifest: Object) -> dict[tuple[str, str], Object]:
    return {
        (flavor["name"], quota["name"]): quota
        for group in manifest.get("spec", {}).get("resourceGroups", ())
        for flavor in group.get("flavors", ())
        for quota in flavor.get("resources", ())
    }


def _key(identity: Identity) -> str:
    _, namespace, name = identity
    return f"{namespace}/{name}" if namespace else name


def _title(identity: Identity) -> str:
    return f"{identity[0]} {_key(identity)}"
