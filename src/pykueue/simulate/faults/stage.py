"""An API server for each run, without installing everything each time."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

from pykueue.api.conversion import convert
from pykueue.api.crds import crds
from pykueue.api.objects import Object
from pykueue.api.resources import KUEUE_GROUP
from pykueue.clock import Clock, run_virtual
from pykueue.cluster import webhook_of
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.apiserver.webhooks.admission import WebhookFailedError
from pykueue.embedded.autoscaler.definition import definition as provisioning_request_definition
from pykueue.embedded.jobset.admission import webhooks as jobset_webhooks
from pykueue.embedded.jobset.definition import definition as jobset_definition
from pykueue.embedded.operators.catalog import named
from pykueue.embedded.operators.definitions import definitions
from pykueue.embedded.store.memory import MemoryStore
from pykueue.embedded.store.records import Record
from pykueue.manager.manager import Manager

_installed: dict[tuple[str, ...], MemoryStore] = {}


def installed_store(kinds: tuple[str, ...] = ()) -> MemoryStore:
    """A new store that holds what a fresh cluster with the project's kinds does, and these kinds of jobs.

    Must not be called while an event loop runs the first time.
    """
    installed = _installed.get(kinds)
    if installed is None:
        installed = _installed[kinds] = run_virtual(partial(_install, kinds))
    return copied(installed)


def copied(store: MemoryStore) -> MemoryStore:
    """A store with the present objects and revision of another, without its history."""
    copy = MemoryStore()
    copy.begin(store.revision)
    for table in store.tables():
        other = copy.table(table.name)
        for record in table:
            other.set(record)
    return copy


async def _install(kinds: tuple[str, ...], clock: Clock) -> MemoryStore:
    store = MemoryStore()
    server = Server(store, clock, random.Random(0))
    await server.start()
    server.register_conversion(KUEUE_GROUP, convert)
    # `Cluster` installs both of them too.
    known = (jobset_definition(), provisioning_request_definition())
    await server.install_crds([*crds(), *known, *definitions(one.kind for one in named(kinds))])
    await server.stop()
    return store


async def open_server(store: MemoryStore, clock: Clock, rng: random.Random) -> Server:
    """A started server over a store of `installed_store`."""
    server = Server(store, clock, rng)
    server.register_conversion(KUEUE_GROUP, convert)
    await server.start()
    for endpoint in server.core.registry:
        # The first writes of a process would compile them step by step, and take other turns than later ones.
        for _ in endpoint.schema.compile_ahead():
            pass
    for webhook in jobset_webhooks(server):
        server.admission.register(webhook)
    return server


def fail_webhooks(server: Server, manager: Manager) -> None:
    """From now on the API server cannot reach the webhooks of this manager, which does not run."""
    for hook in manager.webhooks():
        server.admission.register(replace(webhook_of(hook), review=_unreachable))


async def _unreachable(_: Object) -> Object:
    raise WebhookFailedError("the manager is not running")


def objects_of(old: Record | None, new: Record | None) -> tuple[Object | None, Object | None]:
    """The object before and after a stored write."""
    return (None if old is None else old.object, None if new is None else new.object)
