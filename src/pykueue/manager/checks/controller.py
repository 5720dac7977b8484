"""The ProvisioningRequest admission check: requests capacity for Workloads that have their quota.

For each check of a Workload it creates a ProvisioningRequest, which the cluster autoscaler answers, and
writes the check's state. Source: docs/reference/admission-checks.md, part B.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

from pykueue.api import conditions
from pykueue.api.decoding import decode_as
from pykueue.api.kueue import names
from pykueue.api.kueue.checks import ProvisioningRequestConfig, ProvisioningRequestConfigSpec
from pykueue.api.objects import (
    Key,
    Object,
    controller_of,
    controller_reference,
    get,
    is_deleting,
    key_of,
    labels_of,
    replaced,
    spec_differs,
    true_condition,
)
from pykueue.api.queue_specs import is_check_of, parameters_name
from pykueue.api.resources import (
    KUEUE_GROUP,
    POD_TEMPLATES,
    PROVISIONING_REQUEST_CONFIGS,
    PROVISIONING_REQUESTS,
)
from pykueue.api.variants import has_variants
from pykueue.clock import Clock
from pykueue.jobs.podsets import PodSetConflictError
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.manager.activity import CHECK_ACTIVE, Activity, with_activity
from pykueue.manager.cluster import Cluster

from . import answers, requests
from .answers import INACTIVE, NOT_NEEDED, PENDING, READY, Answer, Attempt
from .requests import Entry

#: Seconds between checks whether the cluster serves ProvisioningRequests while it does not.
UNSERVED_POLL = 5.0


class ProvisioningController:
    """Reconciles Workloads, and the condition Active of the AdmissionChecks of this controller."""

    def __init__(
        self,
        cluster: Cluster,
        recorder: EventRecorder,
        clock: Clock,
        rng: random.Random,
        workers: int = 1,
    ) -> None:
        self._cluster = cluster
        self._writer = cluster.connection.writer
        self._recorder = recorder
        self._clock = clock
        self._rng = rng
        informer = cluster.connection.informer
        self._requests = informer(PROVISIONING_REQUESTS, optional=True)
        self._configs = informer(PROVISIONING_REQUEST_CONFIGS, optional=True)
        self._templates = informer(POD_TEMPLATES, label_selector=f"{names.MANAGED_LABEL}=true")
        self._requests.add_index("owner", _owner_uid)
        ready = [cluster.synced]
        self.controller: Controller[Key] = Controller(
            "provisioning controller", self.reconcile, clock=clock, workers=workers, wait_for=ready
        )
        self._checks: Controller[str] = Controller(
            "provisioning check controller", self._reconcile_check, clock=clock, wait_for=ready
        )
        cluster.workloads.on_event(self._workload_changed)
        cluster.checks.on_event(self._check_changed)
        self._requests.on_event(self._owned_changed)
        self._configs.on_event(self._config_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.controller.run())
            tasks.create_task(self._checks.run())

    # What leads to work

    def _workload_changed(self, type_: str, old: Any, new: Any) -> None:
        if new is not None and (
            get(new, "status", "admissionChecks")
            or self._requests.by_index("owner", get(new, "metadata", "uid"))
        ):
            self.controller.queue.add(key_of(new))

    def _owned_changed(self, type_: str, old: Any, new: Any) -> None:
        obj = old if new is None else new
        owner = controller_of(obj)
        if owner is not None and owner.get("kind") == "Workload":
            self.controller.queue.add((obj["metadata"].get("namespace") or "", str(owner.get("name"))))

    def _check_changed(self, type_: str, old: Any, new: Any) -> None:
        check = old if new is None else new
        if any(one is not None and _is_ours(one) for one in (old, new)):
            self._checks.queue.add(check["metadata"]["name"])
            self._add_workloads(check["metadata"]["name"])

    def _config_changed(self, type_: str, old: Any, new: Any) -> None:
        if not spec_differs(old, new):
            return
        name = (old if new is None else new)["metadata"]["name"]
        for check in self._cluster.checks_with(names.PROVISIONING_CONTROLLER, name):
            self._checks.queue.add(check["metadata"]["name"])
            self._add_workloads(check["metadata"]["name"])

    def _add_workloads(self, check: str) -> None:
        for workload in self._cluster.workloads_with(check):
            self.controller.queue.add(key_of(workload))

    # Checks

    async def _reconcile_check(self, name: str) -> float | None:
        check = self._cluster.checks.get("", name)
        if check is None or not _is_ours(check):
            return None
        is_served = self._requests.is_served
        activity = self._problem(check) or CHECK_ACTIVE
        await self._writer.update(
            self._cluster.checks, ("", name), lambda one: with_activity(one, activity, self._clock.time())
        )
        return None if is_served else UNSERVED_POLL

    def _problem(self, check: Mapping[str, Any]) -> Activity | None:
        """Why the check is inactive; None while it is active."""
        if not self._requests.is_served:
            version = PROVISIONING_REQUESTS.api_version
            return Activity(
                False,
                "ProvisioningRequestsNotServed",
                f"The cluster does not serve ProvisioningRequests ({version})",
            )
        reference, name = get(check, "spec", "parameters"), parameters_name(check)
        accepted = f"{PROVISIONING_REQUEST_CONFIGS.kind} of the API group {KUEUE_GROUP}"
        if not reference:
            return _bad_parameters(f"spec.parameters: required; must name a {accepted}")
        named = (reference.get("apiGroup"), reference.get("kind"))
        if named != (KUEUE_GROUP, PROVISIONING_REQUEST_CONFIGS.kind):
            return _bad_parameters(
                f"spec.parameters: {named[1]} of the API group {named[0]}; accepted: {accepted}"
            )
        if self._configs.get("", name) is None:
            return _bad_parameters(f"{PROVISIONING_REQUEST_CONFIGS.kind} {name} doesn't exist")
        return None

    def _config(self, name: str) -> ProvisioningRequestConfigSpec | None:
        """The configuration of a check of this controller; None while the check is inactive."""
        check = self._cluster.checks.get("", name)
        if check is None or self._problem(check) is not None:
            return None
        config = self._configs.get("", parameters_name(check))
        return decode_as(ProvisioningRequestConfig, config).spec

    # Workloads

    async def reconcile(self, key: Key) -> float | None:
        """Bring the requests of one Workload, and its checks, up to date."""
        workload = self._cluster.workload(key)
        if workload is None or is_deleting(workload) or has_variants(workload):
            return None  # its requests are deleted with it
        owned = [
            one
            for one in self._requests.by_index("owner", workload["metadata"].get("uid"))
            if not is_deleting(one)
        ]
        if not _is_in_phase_two(workload):
            cleanup = self._cluster.configuration.gates["CleanupProvisioningRequestsOnEviction"]
            await self._delete(owned if cleanup or conditions.is_finished(workload) else [])
            return None
        configs = {name: self._config(name) for name in self._own_checks(workload)}
        attempts = self._attempts(workload, configs, owned)
        kept = [attempt.request for attempt in attempts.values()]
        await self._delete([one for one in owned if one not in kept])
        workload = await self._answer(workload, configs, attempts)
        if workload is None or not _is_in_phase_two(workload) or conditions.is_admitted(workload):
            return None
        for name, config in configs.items():
            check = _state(workload, name)
            if config is None or check is None or check.get("state") == READY:
                continue
            if requests.needed_pod_sets(workload, config):
                await self._request(workload, check, config, attempts.get(name))
        return self._next_report(attempts.values())

    def _next_report(self, attempts: Iterable[Attempt]) -> float | None:
        """Seconds until a check reports that no autoscaler answers its request; None if none will."""
        now = self._clock.time()
        times = [answers.reported_at(attempt.request) for attempt in attempts]
        return min((at - now for at in times if now < at < inf), default=None)

    def _own_checks(self, workload: Mapping[str, Any]) -> list[str]:
        """The checks of the Workload that belong to this controller."""
        listed = [str(one.get("name")) for one in get(workload, "status", "admissionChecks") or ()]
        found = {name: self._cluster.checks.get("", name) for name in listed}
        return [name for name, check in found.items() if check is not None and _is_ours(check)]

    def _attempts(
        self,
        workload: Object,
        configs: Mapping[str, ProvisioningRequestConfigSpec | None],
        owned: Sequence[Object],
    ) -> dict[str, Attempt]:
        """The request that counts for each check that has one (docs/reference/admission-checks.md 11.4)."""
        found = {}
        for name, config in configs.items():
            candidates = list(owned)
            if config is not None and (_state(workload, name) or {}).get("state") != READY:
                candidates = [one for one in owned if requests.is_current(one, workload, config)]
                if not requests.needed_pod_sets(workload, config):
                    candidates = []
            request, number = requests.last_request(candidates, workload, name)
            if request is not None:
                entries = [] if config is None else self._entries(workload, config)
                found[name] = Attempt(request, number, _covered(request, entries))
        return found

    def _entries(self, workload: Object, config: ProvisioningRequestConfigSpec) -> list[Entry]:
        """Raises PodSetConflictError."""
        flavors = {
            name: flavor
            for pod_set in get(workload, "spec", "podSets") or ()
            for name in requests.assigned_flavors(workload, str(pod_set.get("name")))
            if (flavor := self._cluster.flavors.get("", name)) is not None
        }
        return requests.entries(workload, config, flavors)

    async def _delete(self, owned: Sequence[Object]) -> None:
        for request in owned:
            await self._writer.delete(self._requests, request, propagation="Background")

    # Answers

    async def _answer(
        self,
        workload: Object,
        configs: Mapping[str, ProvisioningRequestConfigSpec | None],
        attempts: Mapping[str, Attempt],
    ) -> Object | None:
        """Write the states that follow from the requests; returns the Workload after that, None when it is
        gone."""
        jitter = self._rng.random()
        changes: dict[str, tuple[str, Answer]] = {}

        def step(current: Object) -> Object:
            changes.clear()
            if not _is_in_phase_two(current):
                return current
            states = []
            for check in get(current, "status", "admissionChecks") or ():
                name = str(check.get("name"))
                change = self._change(current, check, configs, attempts, jitter) if name in configs else None
                if change is not None:
                    changes[name] = str(check.get("state")), change
                    check = answers.applied(check, change, self._clock.time())
                states.append(check)
            return replaced(current, ("status", "admissionChecks"), states or None)

        written = await self._writer.update(self._cluster.workloads, key_of(workload), step)
        if written is not None:
            for name, (before, change) in changes.items():
                if before != change.state:
                    text = f"Admission check {name} updated state from {before} to {change.state}"
                    note = f"{text} with message {change.message}" if change.message else text
                    self._recorder.event(written, NORMAL, "AdmissionCheckUpdated", note)
        return written

    def _change(
        self,
        workload: Object,
        check: Mapping[str, Any],
        configs: Mapping[str, ProvisioningRequestConfigSpec | None],
        attempts: Mapping[str, Attempt],
        jitter: float,
    ) -> Answer | None:
        name = str(check.get("name"))
        config, attempt = configs[name], attempts.get(name)
        if config is None:
            return None if conditions.is_admitted(workload) else Answer(PENDING, INACTIVE)
        if not requests.needed_pod_sets(workload, config):
            return None if check.get("state") == READY else Answer(READY, NOT_NEEDED)
        if attempt is None:
            return None
        return answers.answer(workload, check, config, attempt, self._clock.time(), jitter)

    # Requests

    async def _request(
        self,
        workload: Object,
        check: Mapping[str, Any],
        config: ProvisioningRequestConfigSpec,
        last: Attempt | None,
    ) -> None:
        """Create the next attempt where one is due, and its templates (11.5)."""
        if last is None:
            number = int(check.get("retryCount") or 0) + 1
        elif true_condition(get(last.request, "status"), "Failed", "BookingExpired") is None:
            entries = self._entries(workload, config)
            await self._write_templates(workload, last.request["metadata"]["name"], entries, last.request)
            return
        elif check.get("state") == PENDING:
            number = last.number + 1
        else:
            return
        name = requests.request_name(workload["metadata"]["name"], str(check["name"]), number)
        try:
            entries = self._entries(workload, config)
            await self._write_templates(workload, name, entries, None)
            request = requests.request(workload, name, config, entries)
            created = await self._writer.create(self._requests, request)
        except (ApiError, PodSetConflictError) as error:
            text = f"Error creating ProvisioningRequest {name}: {error}"
            self._recorder.event(workload, WARNING, "FailedCreate", text)
            await self._explain(workload, str(check["name"]), text)
            if isinstance(error, ApiError):
                raise
            return
        text = f"Created ProvisioningRequest: {name}"
        self._recorder.event(workload, NORMAL, "ProvisioningRequestCreated", text)
        await self._write_templates(workload, name, entries, created)

    async def _explain(self, workload: Object, name: str, text: str) -> None:
        """Write the message of a check whose request could not be created."""

        def step(current: Object) -> Object:
            state = (_state(current, name) or {}).get("state")
            return answers.with_answer(current, name, Answer(str(state), text), self._clock.time())

        await self._writer.update(self._cluster.workloads, key_of(workload), step)

    async def _write_templates(
        self, workload: Object, name: str, entries: Sequence[Entry], request: Object | None
    ) -> None:
        """Create the PodTemplates of the request `name`, and hand them over to it once it exists.

        One of the same name is left by an earlier attempt, whose deletion would delete it too: it gets the
        new content and owner.
        """
        for entry in entries:
            desired = requests.pod_template(workload, name, entry)
            if request is not None:
                kind = PROVISIONING_REQUESTS
                owner = controller_reference(request, kind.api_version, kind.kind)
                desired = replaced(desired, ("metadata", "ownerReferences"), [owner])
            key = key_of(desired)
            found = self._templates.get(*key)
            if found is None:
                try:
                    await self._writer.create(self._templates, desired)
                    continue
                except ApiError as error:
                    if not error.already_exists:
                        raise
                found = await self._writer.reread(self._templates, key)
            if found is None:
                continue
            if request is None or not _is_owned_by(found, request):
                metadata = {
                    **found["metadata"],
                    "labels": {**labels_of(found), **requests.MANAGED_LABELS},
                    "ownerReferences": desired["metadata"]["ownerReferences"],
                }
                changed = {**found, "metadata": metadata, "template": desired["template"]}
                await self._writer.change(self._templates, found, changed)


def _bad_parameters(message: str) -> Activity:
    return Activity(False, "BadParametersRef", message)


def _is_ours(check: Mapping[str, Any]) -> bool:
    return is_check_of(check, names.PROVISIONING_CONTROLLER)


def _owner_uid(request: Mapping[str, Any]) -> list[str]:
    owner = controller_of(request)
    return [] if owner is None else [str(owner.get("uid"))]


def _is_owned_by(obj: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
    reference = controller_of(obj)
    return reference is not None and reference.get("uid") == owner["metadata"].get("uid")


def _is_in_phase_two(workload: Mapping[str, Any]) -> bool:
    """Whether it has quota that it is not losing, and so is waiting for its checks or admitted."""
    return (
        conditions.has_quota(workload)
        and not conditions.is_evicted(workload)
        and not conditions.is_finished(workload)
    )


def _state(workload: Mapping[str, Any], name: str) -> Object | None:
    """The state of a check of the Workload."""
    checks = get(workload, "status", "admissionChecks") or ()
    return next((dict(one) for one in checks if one.get("name") == name), None)


def _covered(request: Mapping[str, Any], entries: Sequence[Entry]) -> list[tuple[str, ...]]:
    """The pod sets by entry of the request."""
    name = request["metadata"]["name"]
    named = {get(one, "podTemplateRef", "name") for one in get(request, "spec", "podSets") or ()}
    return [one.pod_sets for one in entries if requests.template_name(name, one.pod_sets[0]) in named]
