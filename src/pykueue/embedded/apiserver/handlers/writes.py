"""Create, update and patch: one path for every kind.

decode, mutate, set what the server owns, validate, compare, store, wait until settled. The order is that of
docs/reference/kubernetes-api-machinery.md, section 11.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable

import orjson

from pykueue.api.json_equality import same
from pykueue.api.objects import Object, is_deleting
from pykueue.embedded.apiserver.apply.server_side import apply_in_steps, track_create, track_update
from pykueue.embedded.apiserver.apply.strategic import strategic_patch
from pykueue.embedded.apiserver.auth.escalation import Escalation
from pykueue.embedded.apiserver.registry.call import Answer, Call, WriteOptions, write_options
from pykueue.embedded.apiserver.registry.core import Core, HookContext
from pykueue.embedded.apiserver.registry.endpoints import Endpoint
from pykueue.embedded.apiserver.webhooks.admission import Admission, Attributes
from pykueue.embedded.apiserver.webhooks.builtin import BuiltinAdmission
from pykueue.embedded.kinds.base import NO_EXPRESSIONS
from pykueue.embedded.objects import metadata
from pykueue.embedded.objects.errors import (
    Cause,
    already_exists,
    bad_request,
    conflict,
    forbidden_request,
    immutable,
    invalid_object,
    method_not_allowed,
    named,
    not_found,
    required,
    unsupported_media_type,
)
from pykueue.embedded.objects.patch import json_patch, merge_patch
from pykueue.embedded.schema.walk import null_causes
from pykueue.embedded.store.records import Record
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

from .decoding import decode, with_default_status

#: How often a write without a resourceVersion is tried again when another one came first.
_ATTEMPTS = 8

#: The steps of a long computation, between which others can be served, and its result.
Steps = Generator[None, None, Object]
Make = Callable[[Object], Object | Steps]


#: Expressions compiled between two pauses: each takes about 0.3 ms.
_COMPILED_TOGETHER = 32
#: Bytes of a body from which a write is done in several turns of the loop.
_LARGE = 64 * 1024


#: Bytes of JSON that an object may have: those of a request to etcd.
MAX_OBJECT = 1_572_864
#: Objects are not measured while body and old object have fewer bytes: defaults and managedFields add less.
_SURELY_SMALL = MAX_OBJECT // 16


def _check_size(call: Call, new: Object, current: Record | None) -> None:
    """413 when an object is too large to be stored, in the words of etcd."""
    before = len(current.data) if current is not None and call.body_size else 0
    if not call.body_size or call.body_size + before < _SURELY_SMALL:
        return
    size = len(orjson.dumps(new))
    if size > MAX_OBJECT:
        message = (
            f"etcdserver: request is too large: the object would have {size} bytes; at most {MAX_OBJECT}"
        )
        raise ApiError(413, "RequestEntityTooLarge", message)


async def _compile_expressions(expressions: Iterable[object]) -> list[object]:
    """Compile the expressions of an object (`Kind.compile_ahead`); others are served while that is done.

    They stay compiled as long as the caller keeps the result.
    """
    kept: list[object] = []
    for one in expressions:
        kept.append(one)
        if one is None or len(kept) % _COMPILED_TOGETHER == 0:
            await asyncio.sleep(0)
    return kept


async def _compile_schema(endpoint: Endpoint) -> None:
    """Compile the schema of a custom kind, once for all that wait for it; others are served meanwhile."""
    while not endpoint.compiled:
        if endpoint.compiling is not None:
            await endpoint.compiling.wait()
            continue
        endpoint.compiling = over = asyncio.Event()
        try:
            for schema in (endpoint.schema, endpoint.storage.schema):
                for _ in schema.compile_ahead():
                    await asyncio.sleep(0)
            endpoint.compiled = True
        finally:
            endpoint.compiling = None
            over.set()


async def _carried_out(steps: Steps, call: Call) -> Object:
    """The result of steps; others are served between those of a large request."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: Object = done.value
            return result
        if call.body_size >= _LARGE:
            await asyncio.sleep(0)


class Writes:
    """Creates, updates and patches."""

    def __init__(
        self, core: Core, admission: Admission, builtin: BuiltinAdmission, rights: Escalation
    ) -> None:
        self._core = core
        self._admission = admission
        self._builtin = builtin
        self._rights = rights

    # -- create

    async def create(self, call: Call) -> Answer:
        """POST on a collection."""
        endpoint, target = call.endpoint, call.target
        options = write_options(call, "CreateOptions")
        if endpoint.namespaced and not target.namespace:
            raise method_not_allowed()
        if endpoint.ending:
            raise method_not_allowed("create not allowed while custom resource definition is terminating")
        if not endpoint.compiled:
            await _compile_schema(endpoint)
        obj = await decode(endpoint, call.body, options, call)
        if call.body_size >= _LARGE:
            await asyncio.sleep(0)
        return await self._create(call, options, obj)

    async def _create(self, call: Call, options: WriteOptions, obj: Object) -> Answer:
        expressions = call.endpoint.storage.kind.compile_ahead(obj)
        if expressions is not NO_EXPRESSIONS:
            call.compiled = await _compile_expressions(expressions)
        return await self._store_new(call, options, obj)

    async def _store_new(self, call: Call, options: WriteOptions, obj: Object) -> Answer:
        core, target = self._core, call.target
        endpoint = call.endpoint
        kind = endpoint.storage.kind
        sent = obj["metadata"]
        namespace = target.namespace
        given = sent.get("namespace")
        if given and given != namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        meta = metadata.for_create(sent)
        if call.content_type == APPLY_PATCH and "managedFields" in sent:
            meta["managedFields"] = sent["managedFields"]
        if namespace:
            self._check_namespace(endpoint, namespace, meta.get("name") or "")
            meta["namespace"] = namespace
        now = core.clock.time()
        meta["uid"] = core.uids.next(now)
        meta["creationTimestamp"] = metadata.time_text(int(now))
        obj = {**obj, "metadata": meta}
        obj = self._builtin.admit(endpoint, obj)
        meta = obj["metadata"]
        attributes: Attributes | None = None
        if self._admission.wanted("CREATE", call, options.dry_run):
            attributes = Attributes("CREATE", call, meta.get("name") or "", namespace, None, options.dry_run)
            obj = await self._mutate(call, options, attributes, obj)
            meta = dict(obj["metadata"])
            obj = {**obj, "metadata": meta}
        if "status" in obj and kind.has_status and not kind.keeps_status_at_create:
            obj = dict(obj)
            del obj["status"]
        if kind.has_generation:
            meta["generation"] = 1
        context = HookContext(core, call.user, options.dry_run)
        generated = not meta.get("name") and bool(meta.get("generateName"))
        for _ in range(_ATTEMPTS):
            if generated:
                meta["name"] = metadata.generated_name(meta["generateName"], core.rng)
                if endpoint.table.get((namespace, meta["name"])) is not None:
                    continue
            break
        name = meta.get("name") or ""
        if not name:
            cause = required("metadata.name", "name or generateName is required")
            raise invalid_object(endpoint.group, kind.kind, "", [cause])
        key = (namespace, name)
        existing = endpoint.table.get(key)
        if existing is not None:
            raise self._taken(endpoint, existing, generated)
        if "fieldManager" in call.query and call.content_type != APPLY_PATCH:
            form, at = endpoint.tracked, core.now_text()
            obj = track_create(
                obj, options.manager, at, form.schema, form.api_version, kind.typed, kind.has_status
            )
        obj = kind.fill_status(kind.prepare_create(obj, context))
        if kind.has_status and not kind.typed:
            obj = with_default_status(endpoint.storage, obj)
        self._validate_new(endpoint, obj)
        self._rights.confirm(call, obj, None)
        if attributes is not None:
            await self._admission.validate(attributes, obj)
            existing = endpoint.table.get(key)
            if existing is not None:
                raise self._taken(endpoint, existing, generated)
        self._builtin.check(endpoint, obj, "CREATE")
        _check_size(call, obj, None)
        self._builtin.charge(endpoint, obj, options.dry_run)
        if options.dry_run:
            await core.store.settle()
            obj["metadata"].pop("resourceVersion", None)
            return Answer(201, Record(key, 0, obj))
        record = core.store.put(endpoint.table, key, obj)
        await core.store.settled(record.revision)
        return Answer(201, record)

    def _taken(self, endpoint: Endpoint, existing: Record, generated: bool) -> ApiError:
        name = existing.key[1]
        error = already_exists(endpoint.group, endpoint.plural, name)
        if is_deleting(existing.object):
            text = f"object is being deleted: {error.message}"
            return ApiError(error.code, error.reason, text, error.details)
        if generated:
            text = f"{error.message}; the server was not able to generate a unique name for the object"
            return ApiError(error.code, error.reason, text, error.details, 1)
        return error

    def _check_namespace(self, endpoint: Endpoint, namespace: str, name: str) -> None:
        """Objects need a Namespace that is there and not going away."""
        found = self._core.find("", "namespaces", "", namespace)
        if found is None:
            raise not_found("", "namespaces", namespace)
        if (found.get("status") or {}).get("phase") == "Terminating":
            error = forbidden_request(
                endpoint.group,
                endpoint.plural,
                name,
                f"unable to create new content in namespace {namespace} because it is being terminated",
            )
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            error.details["causes"] = [cause]
            raise error

    def _validate_new(self, endpoint: Endpoint, obj: Object) -> None:
        storage = endpoint.storage
        kind, meta = storage.kind, obj["metadata"]
        causes = metadata.causes(meta, kind.name_rule)
        if not kind.typed and not endpoint.renamed:
            causes.extend(storage.schema.validate(obj))
        causes.extend(kind.validate(obj))
        if causes:
            raise invalid_object(endpoint.group, kind.kind, meta["name"], causes)

    async def _mutate(
        self,
        call: Call,
        options: WriteOptions,
        attributes: Attributes,
        obj: Object,
    ) -> Object:
        """The object after mutating webhooks, brought into shape again if they changed it."""
        mutated = await self._admission.mutate(attributes, obj)
        if mutated is obj:
            return obj
        kept = obj["metadata"]
        relaxed = options._replace(field_validation="Ignore")
        mutated = await decode(call.endpoint.storage, mutated, relaxed, None, obj)
        stand_in = {"name": "", "resourceVersion": "", **kept}
        meta = metadata.for_update({**mutated["metadata"], "managedFields": None}, stand_in)
        for field in ("name", "resourceVersion"):
            if field not in kept:
                meta.pop(field, None)
        return {**mutated, "metadata": meta}

    # -- update and patch

    async def update(self, call: Call) -> Answer:
        """PUT on an object or its status."""
        options = write_options(call, "UpdateOptions")
        if not call.target.name:
            raise bad_request("name must be provided")
        body = call.body
        if not call.endpoint.compiled:
            await _compile_schema(call.endpoint)

        async def create() -> Answer:
            self._rights.confirm_create(call)
            obj = await decode(call.endpoint, body, options, call)
            obj["metadata"].setdefault("name", call.target.name)
            return await self._create(call, options, obj)

        may_create = call.endpoint.storage.kind.create_on_update and not call.target.subresource
        return await self.modify(call, options, lambda _: body, create if may_create else None)

    async def patch(self, call: Call) -> Answer:
        """PATCH on an object or its status, in any of the four forms."""
        options = write_options(call, "PatchOptions")
        endpoint, body = call.endpoint, call.body
        if not endpoint.compiled:
            await _compile_schema(endpoint)
        match call.content_type:
            case "application/merge-patch+json":
                return await self.modify(call, options, lambda old: merge_patch(old, body, call.body_nulls))
            case "application/json-patch+json":
                return await self.modify(call, options, lambda old: json_patch(old, body))
            case "application/strategic-merge-patch+json" if not endpoint.custom:
                return await self.modify(
                    call, options, lambda old: strategic_patch(old, body, endpoint.schema)
                )
            case "application/apply-patch+yaml":
                return await self._apply(call, options)
        accepted = [JSON_PATCH, MERGE_PATCH, *([] if endpoint.custom else [STRATEGIC_PATCH]), APPLY_PATCH]
        raise unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(accepted)
        )

    async def _apply(self, call: Call, options: WriteOptions) -> Answer:
        endpoint, body, target = call.endpoint, call.body, call.target
        if not isinstance(body, dict):
            raise bad_request("the applied configuration must be an object")
        for field in ("apiVersion", "kind"):
            if not body.get(field):
                raise bad_request(f"Object '{field.capitalize()}' is missing")
        if body["apiVersion"] != endpoint.api_version or body["kind"] != endpoint.kind.kind:
            raise bad_request(
                f"the configuration is of {named(body['apiVersion'])} {named(body['kind'])}, the request of "
                f"{endpoint.api_version} {endpoint.kind.kind}"
            )
        given = body.get("metadata")
        if not isinstance(given, dict):
            given = {}
        if given.get("managedFields") is not None:
            raise bad_request("metadata.managedFields must be nil")
        if given.get("name") not in (None, target.name):
            raise bad_request(
                f"the name of the object ({named(given.get('name'))}) does not match the name on the URL "
                f"({target.name})"
            )
        config = {**body, "metadata": {**given, "name": target.name}}
        now = self._core.now_text()
        written = config.get("status") if target.subresource == "status" else config
        nulls = endpoint.custom and b"null" in orjson.dumps(written)

        def run(live: Object | None) -> Steps:
            applied = yield from apply_in_steps(
                live,
                config,
                options.manager,
                options.force,
                target.subresource,
                now,
                endpoint.schema,
                endpoint.api_version,
                status_apart=endpoint.kind.has_status,
                nulls=nulls,
                zero_status=endpoint.kind.zero_status if endpoint.kind.typed else None,
            )
            if nulls and applied is not live:
                node = endpoint.schema.node
                causes = list(null_causes(applied, node, node.properties.get("metadata")))
                if causes:
                    raise invalid_object(endpoint.group, endpoint.kind.kind, target.name, causes)
            return applied

        async def create() -> Answer:
            self._rights.confirm_create(call)
            if given.get("uid"):
                raise conflict(
                    endpoint.group,
                    endpoint.plural,
                    target.name,
                    f"uid mismatch: the provided object specified uid {named(given['uid'])}, and no existing "
                    "object was found",
                )
            applied = await _carried_out(run(None), call)
            if call.body_size >= _LARGE:
                await asyncio.sleep(0)
            obj = await decode(endpoint, applied, options, call)
            if call.body_size >= _LARGE:
                await asyncio.sleep(0)
            return await self._create(call, options, obj)

        return await self.modify(call, options, run, None if target.subresource else create)

    async def modify(
        self,
        call: Call,
        options: WriteOptions,
        make: Make,
        create: Callable[[], Awaitable[Answer]] | None = None,
        internal: bool = False,
    ) -> Answer:
        """Replace an object by what `make` builds from it (both in the endpoint's version).

        Tried again when another write comes between, unless the result itself insists on a resourceVersion.
        An `internal` change is the server's own, behind a subresource: the kind's hooks do not restrict it.
        """
        core, endpoint, target = self._core, call.endpoint, call.target
        key = (target.namespace, target.name)
        for _ in range(_ATTEMPTS):
            current = endpoint.table.get(key)
            if current is None:
                if create is None:
                    raise not_found(endpoint.group, endpoint.plural, target.name)
                return await create()
            if endpoint.fetch is not None:
                await endpoint.ready((current.object,))
            view = endpoint.from_storage(current.object)
            made = make(view)
            sent = await _carried_out(made, call) if isinstance(made, Generator) else made
            if sent is view:
                await core.store.settled(current.revision)
                return Answer(200, current)
            large = call.body_size >= _LARGE
            if large:
                await asyncio.sleep(0)
            new = await decode(endpoint, sent, options, call, view)
            if large:
                await asyncio.sleep(0)
            expressions = endpoint.storage.kind.compile_ahead(new)
            if expressions is not NO_EXPRESSIONS:
                call.compiled = await _compile_expressions(expressions)
            answer = await self._replace(call, options, current, new, internal)
            if answer is not None:
                return answer
        raise conflict(endpoint.group, endpoint.plural, target.name)

    async def _replace(
        self, call: Call, options: WriteOptions, current: Record, new: Object, internal: bool
    ) -> Answer | None:
        """Store `new` in place of `current`; None when another write came between."""
        core, endpoint, target = self._core, call.endpoint, call.target
        storage = endpoint.storage
        kind, old = storage.kind, current.object
        sent, old_meta = new["metadata"], old["metadata"]
        self._check_identity(call, sent, old_meta)
        new = {**new, "metadata": metadata.for_update(sent, old_meta)}
        status_write = target.subresource == "status"
        if not status_write and not internal and kind.has_status:
            if "status" in old:
                new["status"] = old["status"]
            else:
                new.pop("status", None)
                new = kind.fill_status(new)
        attributes: Attributes | None = None
        if self._admission.wanted("UPDATE", call, options.dry_run):
            attributes = Attributes("UPDATE", call, target.name, target.namespace, old, options.dry_run)
            new = await self._mutate(call, options, attributes, new)
        if not internal:
            context = HookContext(core, call.user, options.dry_run)
            new = (kind.prepare_status if status_write else kind.prepare_update)(new, old, context)
        if same(new, old):
            await core.store.settled(current.revision)
            return Answer(200, current)
        meta = dict(new["metadata"])
        if call.content_type != APPLY_PATCH and "managedFields" in meta:
            new = track_update(
                old,
                {**new, "metadata": meta},
                options.manager,
                target.subresource,
                core.now_text(),
                endpoint.tracked.schema,
                endpoint.tracked.api_version,
            )
            meta = dict(new["metadata"])
        new = {**new, "metadata": meta}
        if kind.has_generation and not status_write and not internal and kind.bumps_generation(new, old):
            meta["generation"] = old_meta.get("generation", 0) + 1
        if not internal:
            self._validate_change(endpoint, new, old, sent, status_write)
            self._rights.confirm(call, new, old)
        if attributes is not None:
            await self._admission.validate(attributes, new)
        if not internal and not status_write:
            self._builtin.check(endpoint, new, "UPDATE")
        _check_size(call, new, current)
        if endpoint.table.get(current.key) is not current:
            if sent.get("resourceVersion") and call.method == "PUT":
                raise conflict(endpoint.group, endpoint.plural, target.name)
            return None
        if options.dry_run:
            await core.store.settle()
            return Answer(200, Record(current.key, current.revision, new))
        if (
            meta.get("deletionTimestamp")
            and not meta.get("finalizers")
            and not meta.get("deletionGracePeriodSeconds")
            and not kind.holds_content(new)
        ):
            last = core.store.remove(endpoint.table, current.key)
            await core.store.settled(last.revision)
            return Answer(200, Record(current.key, current.revision, new))
        record = core.store.put(endpoint.table, current.key, new)
        await core.store.settled(record.revision)
        return Answer(200, record)

    def _check_identity(self, call: Call, sent: Object, old: Object) -> None:
        """The body must be about the object it is sent to, in the version it is in."""
        endpoint, target = call.endpoint, call.target
        if sent.get("name") not in (None, "", target.name):
            raise bad_request(
                f"the name of the object ({named(sent.get('name'))}) does not match the name on the URL "
                f"({target.name})"
            )
        if sent.get("namespace") not in (None, "", old.get("namespace")):
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        version = sent.get("resourceVersion")
        if version and version != "0":
            if version != old["resourceVersion"]:
                raise conflict(endpoint.group, endpoint.plural, target.name)
        elif call.method == "PUT" and not endpoint.storage.kind.unconditional_update:
            cause = Cause(
                "metadata.resourceVersion",
                "FieldValueInvalid",
                "Invalid value: 0x0: must be specified for an update",
            )
            raise invalid_object(endpoint.group, endpoint.kind.kind, target.name, [cause])
        uid = sent.get("uid")
        if uid and uid != old["uid"]:
            if call.method != "PUT":
                cause = immutable("metadata.uid", uid)
                raise invalid_object(endpoint.group, endpoint.kind.kind, target.name, [cause])
            raise conflict(
                endpoint.group,
                endpoint.plural,
                target.name,
                f"Precondition failed: UID in precondition: {named(uid)}, UID in object meta: {old['uid']}",
            )

    def _validate_change(
        self, endpoint: Endpoint, new: Object, old: Object, sent: Object, status_write: bool
    ) -> None:
        storage = endpoint.storage
        kind = storage.kind
        meta, old_meta = new["metadata"], old["metadata"]
        causes = metadata.update_causes(sent, old_meta)
        if not status_write or not endpoint.custom:
            fields = ("labels", "annotations", "finalizers", "ownerReferences")
            if any(meta.get(field) is not old_meta.get(field) for field in fields):
                causes.extend(metadata.causes(meta, kind.name_rule))
        if not kind.typed and not endpoint.renamed:
            causes.extend(storage.schema.validate(new, old))
        if status_write:
            causes.extend(kind.validate_status(new, old))
        else:
            causes.extend(kind.validate_again(new, old))
            causes.extend(kind.validate_update(new, old))
        if causes:
            raise invalid_object(endpoint.group, kind.kind, old_meta["name"], causes)
