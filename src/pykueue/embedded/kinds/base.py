"""What is particular to one kind of object; everything else about it is the generic resource path.

A `Kind` describes one kind in one served version: its names, and hooks that the request pipeline calls in
this order: `default`, `prepare_create` or `prepare_update` (or `prepare_status`), `validate` (plus
`validate_update` or `validate_status` when there is an old object). Objects are shared and immutable: a hook
returns its argument when there is nothing to change, and otherwise a new object that copies only along the
changed path. Before the first hook the object's types have been checked against the published schema, so
hooks need not guard against a string where a map belongs; they must guard against absent fields.

Built-in kinds and custom ones (made from CustomResourceDefinitions) are both described this way.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

from pykueue.api.objects import Object
from pykueue.embedded.kinds.printing import age_cell
from pykueue.embedded.objects.errors import Cause
from pykueue.embedded.objects.values import with_zero_fields

#: The verbs of a full resource.
ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Column(NamedTuple):
    """One printed column. Priority 0 is always shown, 1 only in wide output."""

    name: str
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""


class Subresource(NamedTuple):
    """A subresource as discovery lists it. Empty group and version mean the kind's own."""

    name: str
    verbs: tuple[str, ...] = ("get", "patch", "update")
    kind: str = ""
    group: str = ""
    version: str = ""


STATUS = Subresource("status")
SCALE = Subresource("scale", kind="Scale", group="autoscaling", version="v1")

#: What `Kind.compile_ahead` returns for kinds without expressions.
NO_EXPRESSIONS: tuple[object, ...] = ()

NAME_COLUMN = Column("Name", format="name")
AGE_COLUMN = Column("Age")


class Context(Protocol):
    """What a hook may use besides the object: the time, random numbers, the user, other objects."""

    rng: random.Random
    user: str
    dry_run: bool

    @property
    def now(self) -> float:
        """Seconds since 1970."""
        ...

    def lookup(self, group: str, plural: str, namespace: str, name: str) -> Object | None:
        """Another stored object, or None. `namespace` is empty for cluster-scoped kinds."""
        ...

    def objects(self, group: str, plural: str, namespace: str = "") -> Iterable[Object]:
        """All stored objects of a resource, of one namespace if given, by namespace and name."""
        ...


class Kind:
    """One kind in one served version. Subclasses set the names and override the hooks they need."""

    group: str = ""
    version: str = "v1"
    kind: str = ""
    plural: str = ""
    namespaced: bool = True
    #: Empty means the kind in lower case.
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()

    #: `subdomain` (DNS-1123, up to 253), `label` (DNS-1123, up to 63), `label-1035` or `path` (any segment).
    name_rule: str = "subdomain"
    #: Whether metadata.generation is kept.
    has_generation: bool = True
    #: Whether PUT without a resourceVersion is accepted.
    unconditional_update: bool = True
    #: Whether PUT of a missing object creates it.
    create_on_update: bool = False
    #: What a built-in kind's status shows where nothing else is set. A server written in Go encodes fields of
    #: value type that are not `omitempty`, and structs, also when they are zero (types.go of each group).
    zero_status: ClassVar[Object] = {}
    #: Whether a status given at creation is kept although it is a subresource (nodes register with theirs).
    keeps_status_at_create: bool = False
    #: Whether DELETE answers the object rather than a Status, as for kinds with graceful deletion.
    shows_deleted: bool = False
    #: What happens to dependents when a DELETE does not say.
    default_propagation: str = "Background"
    #: The message of the response when a DELETE leaves it at that.
    default_propagation_warning: str = ""
    #: Whether types are checked as soon as the body is decoded, as for built-in kinds; custom ones are
    #: checked once, after mutating admission.
    typed: bool = True

    columns: tuple[Column, ...] = (NAME_COLUMN, AGE_COLUMN)
    #: Paths of wanted replicas, actual replicas and label selector text, for kinds with a scale subresource.
    scale_paths: tuple[str, str, str] = (".spec.replicas", ".status.replicas", "")
    #: Selectable fields besides metadata.name and metadata.namespace: path to the function giving the text.
    field_selectors: Mapping[str, Callable[[Object], str]] = {}

    _status_free: ClassVar[frozenset[str]] = frozenset(("metadata", "status"))

    @cached_property
    def api_version(self) -> str:
        """`group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        """The kind of lists of such objects."""
        return f"{self.kind}List"

    @property
    def singular_name(self) -> str:
        """The singular name as kubectl accepts it."""
        return self.singular or self.kind.lower()

    @cached_property
    def has_status(self) -> bool:
        """Whether status is written through its own endpoint only."""
        return any(one.name == "status" for one in self.subresources)

    def default(self, obj: Object) -> Object:
        """Fill in what the user left out. Must be idempotent; runs on every write."""
        return obj

    def fill_status(self, obj: Object) -> Object:
        """The object with all of `zero_status` present.

        Kinds without a status stay as they are, and so do custom ones: their schema says what a status has.
        """
        if not self.typed or not self.has_status:
            return obj
        status = obj.get("status")
        filled = with_zero_fields(status, self.zero_status)
        return obj if filled is status else {**obj, "status": filled}

    def default_change(self, obj: Object, old: Object) -> Object:
        """The same for an object that is to replace `old`; a spec that did not change is the very same."""
        return self.default(obj)

    def prepare_create(self, obj: Object, context: Context) -> Object:
        """Set what the server owns on a new object. A status subresource has been dropped already."""
        return obj

    def prepare_update(self, new: Object, old: Object, context: Context) -> Object:
        """Restore what this endpoint may not change. A status subresource has been restored already."""
        return new

    def prepare_status(self, new: Object, old: Object, context: Context) -> Object:
        """Restore what the status endpoint may not change: everything but the status and metadata."""
        kept = {key: value for key, value in old.items() if key not in self._status_free}
        for key in self._status_free:
            if key in new:
                kept[key] = new[key]
        return kept

    def compile_ahead(self, obj: Object) -> Iterable[object]:
        """Compiles the expressions in an object of this kind, in steps between which others are served.

        What it yields is kept until the object is validated and stored, so that neither compiles them again.
        None stands for a step as long as many of the others. NO_EXPRESSIONS for kinds without expressions.
        """
        return NO_EXPRESSIONS

    def validate(self, obj: Object) -> list[Cause]:
        """Rules that hold for every stored object of this kind, beyond its schema."""
        return []

    def validate_again(self, new: Object, old: Object) -> list[Cause]:
        """The rules of `validate` for a change of an object that met them."""
        return self.validate(new)

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        """Rules on the change, such as immutable fields. `validate` has run as well."""
        return []

    def validate_status(self, new: Object, old: Object) -> list[Cause]:
        """Rules on a change made through the status endpoint. `validate` does not run there."""
        return []

    def bumps_generation(self, new: Object, old: Object) -> bool:
        """Whether the change counts as a new generation: anything outside metadata and status."""
        if new.get("spec") != old.get("spec"):
            return True
        ignored = ("metadata", "spec", "status") if self.has_status else ("metadata", "spec")
        keys = {*new, *old}.difference(ignored)
        return any(new.get(key) != old.get(key) for key in keys)

    def grace_period(self, obj: Object, requested: int | None) -> int:
        """Seconds between a DELETE and the removal; 0 removes at once. `requested`: by the client."""
        return 0

    def refuses_deletion(self, obj: Object) -> str:
        """Why this object may never be deleted, or nothing."""
        return ""

    def holds_content(self, obj: Object) -> bool:
        """Whether more than finalizers and grace keeps a deleting object, as content keeps a namespace."""
        return False

    def mark_deleted(self, obj: Object, context: Context) -> Object:
        """Other changes that go with the first DELETE of an object that is not removed at once."""
        return obj

    def cells(self, obj: Object, now: float) -> list[Any]:
        """The row of `columns` for one object; `now` in seconds since 1970."""
        # Reviews have no name.
        return [obj["metadata"].get("name", ""), age_cell(obj, now)]

    def row_conditions(self, obj: Object) -> list[dict[str, Any]]:
        """Conditions on the printed row, such as Completed for finished pods."""
        return []
