"""Admission rules on a server on which none are installed.

Without webhooks jobs would start unsuspended. A manager that finds the configurations of an installation has
nothing to do here. On an API server of its own machine it serves its rules itself, on a port of loopback, and
registers them; elsewhere the API server could not reach it, and it refuses to work.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Iterable

from pykueue.api.objects import Object
from pykueue.api.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Resource
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.manager.certificates.local import made_apart
from pykueue.manager.configuration import Configuration
from pykueue.manager.install.admission import webhook_configurations
from pykueue.manager.install.options import Options
from pykueue.manager.install_names import CONVERT_PATH, InstallNames
from pykueue.manager.manager import Manager

from .listener import Listener
from .reviews import Reviews
from .tls import ServingTls

#: Seconds between attempts to ask or tell a server that does not answer.
RETRY = 2.0
#: What the names of configurations end in that point to a process on the server's own machine.
LOCAL = "-local"

log = logging.getLogger(__name__)


class AdmissionMissingError(Exception):
    """The cluster has no admission rules for jobs, and the manager cannot bring them."""


class Admission:
    """Sees that the server asks this manager's rules, as long as `run` works.

    `local`: the API server runs on this machine, so that it reaches a port of loopback.
    """

    def __init__(self, manager: Manager, client: Client, clock: Clock, local: bool) -> None:
        self._manager = manager
        self._client = client
        self._clock = clock
        self._local = local
        self._names = InstallNames.of(manager.configuration)
        #: Set once the server asks the rules.
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Return where the rules are installed, else serve them until cancelled.

        Raises AdmissionMissingError where they are not and the API server is elsewhere.
        """
        while True:
            try:
                missing = await self._missing()
                if not missing:
                    self.ready.set()
                elif self._local:
                    await self._serve()
                break
            except (ConnectionError, TimeoutError) as error:
                log.info("admission rules: %s", error)
                await self._clock.sleep(RETRY)
        if missing:
            raise AdmissionMissingError(
                f"{missing} does not exist, so that jobs would start without a queue; "
                "install it with: pykueue manifests | kubectl apply --server-side -f -"
            )

    async def _missing(self) -> str:
        """The configuration that is not installed; empty where both are, or where that may not be asked."""
        for resource, name in (
            (MUTATING_WEBHOOKS, self._names.mutating_configuration),
            (VALIDATING_WEBHOOKS, self._names.validating_configuration),
        ):
            try:
                await self._client.get(resource, name)
            except ApiError as error:
                if error.not_found:
                    return f"{resource.kind} {name}"
                log.info("%s %s cannot be read: %s", resource.kind, name, error)
        return ""

    async def _serve(self) -> None:
        configuration = self._manager.configuration
        tls = ServingTls(configuration.tls)
        made = await made_apart(self._clock.now())
        tls.use(made.certificate, made.key)
        reviews = Reviews(self._manager.webhooks(), self._manager.synced, self._manager.unused_paths())
        listener = Listener(reviews.handlers(CONVERT_PATH), "POST")
        await listener.open("127.0.0.1", 0, tls.context)
        try:
            for resource, obj in _local_configurations(configuration, listener.port, made.authority):
                await self._client.apply(resource, obj, field_manager="pykueue", force=True)
            self.ready.set()
            log.info("admission rules: served on port %d of this machine", listener.port)
            await asyncio.get_running_loop().create_future()
        finally:
            await listener.close()


def _local_configurations(
    configuration: Configuration, port: int, authority: bytes
) -> Iterable[tuple[Resource, Object]]:
    """The configurations of an installation, pointing to a port of this machine."""
    resources = {resource.kind: resource for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)}
    for obj in webhook_configurations(Options(configuration, configuration_text="", image="")):
        name = obj["metadata"]["name"] + LOCAL
        webhooks = [
            {
                **webhook,
                "clientConfig": {
                    "url": f"https://localhost:{port}{webhook['clientConfig']['service']['path']}",
                    "caBundle": base64.b64encode(authority).decode(),
                },
            }
            for webhook in obj["webhooks"]
        ]
        yield resources[obj["kind"]], {**obj, "metadata": {"name": name}, "webhooks": webhooks}


async def remove_local(client: Client, configuration: Configuration) -> None:
    """Remove what a manager in another process registered: rules of this process take its place."""
    names = InstallNames.of(configuration)
    for resource, name in (
        (MUTATING_WEBHOOKS, names.mutating_configuration),
        (VALIDATING_WEBHOOKS, names.validating_configuration),
    ):
        try:
            await client.delete(resource, name + LOCAL)
        except ApiError as error:
            if not error.not_found:
                raise
