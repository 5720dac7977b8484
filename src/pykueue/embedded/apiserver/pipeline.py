"""What requests go through, whichever way they come in: authorization, then what they do.

Over HTTP and within the process requests are the same `Call`s, and take the same path from here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

from pykueue.api.objects import Object
from pykueue.embedded.apiserver.auth.authentication import Authenticator
from pykueue.embedded.apiserver.auth.escalation import Escalation
from pykueue.embedded.apiserver.auth.rbac import Authorizer
from pykueue.embedded.apiserver.auth.reviews import Reviews
from pykueue.embedded.apiserver.auth.rules import Access
from pykueue.embedded.apiserver.discovery.aggregation import Aggregation, access_of
from pykueue.embedded.apiserver.discovery.documents import Discovery
from pykueue.embedded.apiserver.handlers.decoding import decode, subresource_body
from pykueue.embedded.apiserver.handlers.deletion import Deletion
from pykueue.embedded.apiserver.handlers.eviction import Evictions
from pykueue.embedded.apiserver.handlers.exec import Enter, Session, Wanted
from pykueue.embedded.apiserver.handlers.logs import LogSource, no_lines, pod_logs
from pykueue.embedded.apiserver.handlers.reads import Listing, Reads, call_filter
from pykueue.embedded.apiserver.handlers.subresources import Subresources, scale_of
from pykueue.embedded.apiserver.handlers.writes import Writes
from pykueue.embedded.apiserver.health import Health
from pykueue.embedded.apiserver.metrics import Metrics
from pykueue.embedded.apiserver.registry.call import (
    Answer,
    Call,
    DeleteOptions,
    User,
    delete_options,
    write_options,
)
from pykueue.embedded.apiserver.registry.core import Core
from pykueue.embedded.apiserver.webhooks.admission import Admission
from pykueue.embedded.apiserver.webhooks.builtin import BuiltinAdmission
from pykueue.embedded.objects.errors import internal_error, method_not_allowed
from pykueue.embedded.store.memory import StoreError
from pykueue.embedded.store.records import Record
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import APPLY_PATCH

log = logging.getLogger(__name__)

#: Objects of a collection that are deleted together.
DELETED_TOGETHER = 100

#: Groups whose kinds are questions, answered and never stored.
REVIEW_GROUPS = ("authentication.k8s.io", "authorization.k8s.io")

_NO_PROGRAM = "programs in pods, where there are any, cannot be entered or reached from here"
#: Subresources that need what this cluster does not have: asked for, they say what.
NOT_HERE = {
    ("pods", "exec"): f"exec is not available: {_NO_PROGRAM}",
    ("pods", "attach"): f"attach is not available: {_NO_PROGRAM}",
    ("pods", "portforward"): f"port-forward is not available: {_NO_PROGRAM}",
    ("pods", "ephemeralcontainers"): f"ephemeral containers are not available: {_NO_PROGRAM}",
    ("pods", "resize"): "resize is not available: pods keep the resources they were created with",
}


async def _no_entry(_pod: Object, _wanted: Wanted) -> Session:
    raise ApiError(501, "NotImplemented", NOT_HERE["pods", "exec"])


def _report(call: Call, verb: str, fault: ApiError) -> None:
    """Log a request that failed through no fault of its client, with the cause."""
    target = call.target
    path = "/".join(
        filter(None, (call.endpoint.qualified, target.namespace, target.name, target.subresource))
    )
    message = "%s of %.500s by user %.200s was answered with %d: %.1000s"
    log.warning(message, verb, path, call.user.name, fault.code, fault.message)


class Pipeline:
    """Answers requests to the resources of a `Core`."""

    def __init__(self, core: Core, admission: Admission, aggregation: Aggregation) -> None:
        self.core = core
        self.clock = core.clock
        self.aggregation = aggregation
        self.authorizer = Authorizer(core)
        self.builtin = BuiltinAdmission(core)
        self.deletion = Deletion(core, admission)
        self._reads = Reads(core)
        self._writes = Writes(core, admission, self.builtin, Escalation(self.authorizer))
        self._subresources = Subresources(core, self._writes)
        self._evictions = Evictions(core, self._writes, self.deletion)
        self.discovery = Discovery(core.registry, aggregation)
        self._own_discovery = Discovery(core.registry)
        self._reviews = Reviews(self.authorizer)
        self._authenticator: Authenticator | None = None
        self.metrics = Metrics(core.registry, core.store)
        self.health = Health(core.store, core.clock)
        #: Whether there are controllers and nodes beside the server. Alone it publishes nothing for pods.
        self.runs_pods = False
        #: Where the logs of pods come from; set by the nodes that run the pods.
        self.log_source: LogSource = no_lines
        #: Starts commands in containers; set by the nodes that run the pods.
        self.enter: Enter = _no_entry

    def use_authenticator(self, authenticator: Authenticator) -> None:
        """Check and sign tokens with this one."""
        self._authenticator = self._reviews.authenticator = authenticator

    def user_of_token(self, token: str) -> User | None:
        """The user of a bearer token; None for one that is not valid."""
        return self._authenticator.by_token(token) if self._authenticator is not None else None

    def publish_authority(self, certificate: str) -> None:
        """Tell pods, if any, how to reach the server: the authority's certificate (PEM), and tokens."""
        if self.runs_pods:
            self.builtin.publish_authority(certificate)

    def authorize(self, call: Call) -> None:
        """Refuse what the user may not do (403)."""
        self.authorizer.check(call)

    def authorize_path(self, user: User, verb: str, path: str) -> None:
        """Refuse a path that is not a resource to those who may not read it (403)."""
        self.authorizer.require(user, Access(verb, path=path))

    def document(self, path: str) -> Any:
        """A document that is not an object: discovery, version, OpenAPI, of this server alone."""
        found = self._own_discovery.document(path)
        if found is None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        return found

    async def extended(
        self, method: str, path: str, query: Mapping[str, str], user: User, as_table: bool = False
    ) -> Any:
        """The answer of the extension that a path belongs to, as the user may have it. Raises ApiError."""
        extension = self.aggregation.extension(path)
        access = access_of(method, path, query)
        if extension is None or access is None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        self.authorizer.require(user, access)

        async def may(verb: str, group: str, resource: str, namespace: str) -> bool:
            wanted = Access(verb, group, resource, namespace=namespace)
            return self.authorizer.decide(user, wanted).allowed

        return await extension.answer(method, path, query, may, as_table)

    async def handle(self, call: Call) -> Answer | Listing:
        """Carry out one request (anything but a watch)."""
        code, verb = 500, call.verb()
        start = self.clock.monotonic()
        try:
            refusal: ApiError | None = None
            try:
                answer = await self._handle(call, verb)
            except ApiError as error:
                refusal = error
            if refusal is not None:
                # Writes see what is not settled yet, so it decides on refusals too; reads do not.
                if call.method != "GET":
                    await self.core.store.settle()
                try:
                    raise refusal
                finally:
                    del refusal  # this frame and its traceback would keep each other
            if call.endpoint.fetch is not None:
                await call.endpoint.ready(answer.stored())
            code = 200 if isinstance(answer, Listing) else answer.code
            return answer
        except ApiError as error:
            code = error.code
            if code >= 500 and code != 501:
                _report(call, verb, error)
            raise
        except StoreError as error:
            # The store logs that its disk fails, once.
            raise internal_error(str(error)) from error
        finally:
            if verb == "patch" and call.content_type == APPLY_PATCH:
                verb = "apply"
            self.metrics.request(call, verb, code, self.clock.monotonic() - start)

    async def _handle(self, call: Call, verb: str) -> Answer | Listing:
        self.authorizer.check(call, verb)
        endpoint, target = call.endpoint, call.target
        if endpoint.deprecation:
            call.warnings.append(endpoint.deprecation)
        if target.subresource and target.subresource != "status":
            return await self._handle_subresource(call)
        if verb not in (endpoint.subresources["status"].verbs if target.subresource else endpoint.kind.verbs):
            raise method_not_allowed()
        match verb:
            case "get":
                return await self._reads.get(call)
            case "list":
                return await self._reads.listing(call)
            case "create":
                if target.name:
                    raise method_not_allowed()
                if endpoint.group in REVIEW_GROUPS:
                    options = write_options(call, "CreateOptions")
                    return self._reviews.answer(call, await decode(endpoint, call.body, options, call))
                return await self._writes.create(call)
            case "update":
                return await self._writes.update(call)
            case "patch":
                if not target.name:
                    raise method_not_allowed()
                return await self._writes.patch(call)
            case "delete":
                return await self.deletion.delete(call)
            case "deletecollection":
                return await self._delete_collection(call)
        raise method_not_allowed()

    async def _handle_subresource(self, call: Call) -> Answer:
        name, verb = call.target.subresource, call.verb()
        if verb not in call.endpoint.subresources[name].verbs:
            raise method_not_allowed()
        if (call.endpoint.plural, name) in NOT_HERE:
            await self._reads.get(Call("GET", call.target._replace(subresource=""), {}, call.user))
            raise ApiError(501, "NotImplemented", NOT_HERE[call.endpoint.plural, name])
        match name, verb:
            case "scale", "get":
                answer = await self._reads.get(call)
                await call.endpoint.ready(answer.stored())
                return Answer(200, None, scale_of(call.endpoint, answer.object(call.endpoint)))
            case "scale", _:
                return await self._subresources.write_scale(call)
            case "binding", "create":
                return await self._subresources.bind(call)
            case "eviction", "create":
                return await self._evictions.evict(call)
            case "finalize", "update":
                return await self._subresources.finalize(call)
            case "token", "create":
                return await self._issue_token(call)
        raise method_not_allowed()

    async def _issue_token(self, call: Call) -> Answer:
        if self._authenticator is None:
            raise method_not_allowed("the server signs no tokens before it listens")
        request = subresource_body(call, {} if call.body is None else call.body)
        account = (await self._reads.get(call)).object(call.endpoint)
        return Answer(201, None, self._authenticator.issue(account, request))

    async def _delete_collection(self, call: Call) -> Listing:
        options = delete_options(call)
        selection = call_filter(call)
        endpoint = call.endpoint
        if selection.selective:
            await endpoint.ready(one.peek() for one in endpoint.table.records(selection.namespace))
        wanted = [
            record
            for record in endpoint.table.records(selection.namespace)
            if not selection.selective or selection.matches(endpoint.from_storage(record.object))
        ]
        deleted: list[Record] = []
        for start in range(0, len(wanted), DELETED_TOGETHER):
            # Together, so that they become durable together.
            some = wanted[start : start + DELETED_TOGETHER]
            gone = await asyncio.gather(*(self._delete_one(call, options, record) for record in some))
            deleted += [record for record, done in zip(some, gone, strict=True) if done]
            await asyncio.sleep(0)
        return Listing(deleted, str(self.core.store.settled_revision))

    async def _delete_one(self, call: Call, options: DeleteOptions, record: Record) -> bool:
        """Delete one object of a collection; False when it is gone already."""
        current = call.endpoint.table.get(record.key)
        while current is not None:
            if await self.deletion.remove(call, options, current) is not None:
                return True
            current = call.endpoint.table.get(record.key)
        return False

    # -- what is not an object

    async def entered(self, call: Call) -> Object:
        """The pod in which a command is to be started. Raises ApiError if the user may not.

        It takes the right to create, as starting programs is more than reading, whatever the method is.
        """
        self.authorize(Call("POST", call.target, {}, call.user))
        answer = await self._reads.get(Call("GET", call.target._replace(subresource=""), {}, call.user))
        pod: Object = answer.object(call.endpoint)
        return pod

    async def logs(self, call: Call) -> AsyncIterator[bytes]:
        """The lines of a container's log. 400 when the query names no container that has one."""
        answer = await self._reads.get(call)
        return pod_logs(answer.object(call.endpoint), call.query, self.log_source)

    def metrics_text(self) -> bytes:
        """Everything counted, in Prometheus' text format."""
        return self.metrics.text()
