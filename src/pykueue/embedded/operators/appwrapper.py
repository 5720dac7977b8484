"""The AppWrapper controller: objects that exist together or not at all (docs/reference/operators.md 10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pykueue.api.jobkinds import Place, value_at, with_value
from pykueue.api.jobkinds.appwrapper import APP_WRAPPER, WRAPPER_LABEL, wrapped_pod_sets
from pykueue.api.objects import Object, annotations_of, condition_of, is_deleting, true_condition
from pykueue.api.resources import PODS, Resource
from pykueue.embedded.nodes.durations import parse_duration
from pykueue.embedded.operators.pods import in_phase, stays
from pykueue.embedded.operators.reconciliation import Operator, Pass

FINALIZER = "workload.codeflare.dev/finalizer"
_PREFIX = "workload.codeflare.dev.appwrapper/"
#: Periods in seconds, by the annotation that changes them.
_PERIODS = {
    "admissionGracePeriodDuration": 60.0,
    "warmupGracePeriodDuration": 300.0,
    "failureGracePeriodDuration": 60.0,
    "retryPausePeriodDuration": 90.0,
    "deletionOnFailureGracePeriodDuration": 0.0,
    "successTTLDuration": 7 * 24 * 3600.0,
}
_DEFAULT_RETRIES = 3
#: Conditions whose failure means that the component has failed, by the component's kind.
_FAILING_KINDS = ("Job", "PyTorchJob")


class AppWrapperOperator(Operator):
    """Carries out AppWrappers whose components are of these resources."""

    kind = APP_WRAPPER
    label = WRAPPER_LABEL
    finalizer = FINALIZER

    def __init__(self, components: tuple[Resource, ...]) -> None:
        self.owns = tuple(dict.fromkeys((PODS, *components)))

    def reconcile(self, work: Pass) -> None:
        """One step of the state machine of docs/reference/operators.md 10.2."""
        self._step(work).run()

    def report_failure(self, work: Pass, error: Exception) -> None:
        """Give up after a while if components cannot be created."""
        self._step(work).creation_failed(error)

    def _step(self, work: Pass) -> _Step:
        return _Step(work, {(one.api_version, one.kind): one for one in self.owns})


class _Step:
    """One pass over a wrapper."""

    def __init__(self, work: Pass, resources: Mapping[tuple[str, str], Resource]) -> None:
        self._work = work
        self._resources = resources
        self._components: list[Object] = work.spec.get("components") or []
        self._pods = work.labelled(PODS, WRAPPER_LABEL)

    def run(self) -> None:
        work = self._work
        if work.deleting:
            if self._delete_components():
                work.finalize(FINALIZER, present=False)
            else:
                work.put(phase="Terminating")
            return
        states: dict[str, Callable[[], None]] = {
            "": lambda: self._enter("Suspended"),
            "Suspended": self._suspended,
            "Resuming": self._resuming,
            "Running": self._running,
            "Suspending": self._suspending,
            "Resetting": self._resetting,
            "Failed": self._failed,
            "Succeeded": self._succeeded,
        }
        states.get(str(work.status.get("phase") or ""), lambda: None)()

    def creation_failed(self, error: Exception) -> None:
        """Reset or fail when creating the components has failed for the grace period."""
        work = self._work
        if work.status.get("phase") != "Resuming" or work.deleting or work.spec.get("suspend"):
            return
        if self._elapsed("ResourcesDeployed", "admissionGracePeriodDuration"):
            work.set_condition("Unhealthy", True, "CreateFailed", str(error))
            self._reset_or_fail()

    def _enter(self, state: str) -> None:
        self._work.put(phase=state)

    def _period(self, name: str) -> float:
        text = annotations_of(self._work.job).get(f"{_PREFIX}{name}")
        try:
            return _PERIODS[name] if text is None else parse_duration(text)
        except ValueError:
            return _PERIODS[name]

    def _elapsed(self, condition: str, period: str) -> bool:
        """Whether a condition has had its status for that period; if not, look again when it has."""
        known = condition_of(self._work.status, condition)
        since = None if known is None else known["lastTransitionTime"]
        return self._work.has_elapsed(self._period(period), since)

    # States

    def _suspended(self) -> None:
        work = self._work
        if work.spec.get("suspend") or not work.finalize(FINALIZER, present=True):
            return
        for type_ in ("QuotaReserved", "ResourcesDeployed"):
            work.set_condition(type_, True, "Resuming")
        for type_ in ("PodsReady", "Unhealthy"):
            work.set_condition(type_, False, "Resuming")
        self._enter("Resuming")

    def _resuming(self) -> None:
        work = self._work
        if work.spec.get("suspend"):
            self._suspend()
            return
        complete = True
        for number, component in enumerate(self._components):
            resource = self._resource(component)
            if resource is None:
                made = component.get("template") or {}
                text = f"{made.get('apiVersion')} {made.get('kind')} cannot be made here"
                work.set_condition("Unhealthy", True, "CreateFailed", text)
                self._fail()
                return
            if not work.ensure(resource, self._template(number)):
                complete = False
        if complete:
            self._enter("Running")

    def _running(self) -> None:
        work = self._work
        if work.spec.get("suspend"):
            self._suspend()
            return
        if self._unhealthy():
            return
        expected = sum(one.count for one in wrapped_pod_sets(work.job))
        live = stays(self._pods)
        running, succeeded, failed = (in_phase(live, one) for one in ("Running", "Succeeded", "Failed"))
        pending = in_phase(live, "Pending", "")
        if expected and succeeded >= expected and not running and not failed and not pending:
            work.set_condition("QuotaReserved", False, "Succeeded")
            self._enter("Succeeded")
        elif failed:
            text = f"{failed} failed pods"
            if work.set_condition("Unhealthy", True, "FoundFailedPods", text):
                work.event("Unhealthy", text)
            if self._elapsed("Unhealthy", "failureGracePeriodDuration"):
                self._reset_or_fail()
        elif running + succeeded >= expected:
            work.set_condition("PodsReady", True, "SufficientPodsReady")
            work.set_condition("Unhealthy", False, "FoundNoFailedPods")
        else:
            work.set_condition("PodsReady", False, "InsufficientPodsReady")
            if self._elapsed("ResourcesDeployed", "warmupGracePeriodDuration"):
                text = f"{running + succeeded} of {expected} pods are ready"
                work.set_condition("Unhealthy", True, "InsufficientPodsReady", text)
                self._reset_or_fail()

    def _unhealthy(self) -> bool:
        """Whether a component is missing, or has failed."""
        work = self._work
        for component, name, _resource, found in self._existing():
            if found is None or is_deleting(found):
                work.set_condition("Unhealthy", True, "MissingComponent", f"{name} is missing")
                self._fail()
                return True
            kind = component["template"].get("kind")
            if kind in _FAILING_KINDS and true_condition(found.get("status"), "Failed"):
                work.set_condition("Unhealthy", True, "FailedComponent", f"{name} has failed")
                self._reset_or_fail()
                return True
        return False

    def _reset_or_fail(self) -> None:
        work = self._work
        text = annotations_of(work.job).get(f"{_PREFIX}retryLimit", "")
        limit = int(text) if text.isdecimal() else _DEFAULT_RETRIES
        resets = int(work.status.get("resettingCount") or 0)
        if resets >= limit:
            self._fail()
        else:
            work.put(resettingCount=resets + 1)
            self._enter("Resetting")

    def _fail(self) -> None:
        self._enter("Failed")

    def _suspend(self) -> None:
        self._work.event("Suspending", f"AppWrapper {self._work.name} is suspended")
        self._enter("Suspending")

    def _suspending(self) -> None:
        """Delete everything; it is suspended once components and pods are gone."""
        work = self._work
        if not self._delete_components():
            return
        for type_ in ("ResourcesDeployed", "QuotaReserved"):
            work.set_condition(type_, False, "Suspended")
        for type_ in ("PodsReady", "Unhealthy", "DeletingResources"):
            work.remove_condition(type_)
        self._enter("Suspended")

    def _resetting(self) -> None:
        work = self._work
        if not self._delete_components():
            return
        if work.spec.get("suspend"):
            self._enter("Suspending")
        elif self._elapsed("Unhealthy", "retryPausePeriodDuration"):
            work.remove_condition("DeletingResources")
            work.set_condition("PodsReady", False, "Resuming")
            work.set_condition("ResourcesDeployed", False, "Resuming")
            work.set_condition("ResourcesDeployed", True, "Resuming")
            work.set_condition("Unhealthy", False, "Resuming")
            self._enter("Resuming")

    def _failed(self) -> None:
        work = self._work
        if not work.is_true("ResourcesDeployed"):
            return
        waits = not self._elapsed("Unhealthy", "deletionOnFailureGracePeriodDuration")
        if waits or not self._delete_components():
            return
        for type_ in ("ResourcesDeployed", "QuotaReserved"):
            work.set_condition(type_, False, "Failed")

    def _succeeded(self) -> None:
        work = self._work
        if not work.is_true("ResourcesDeployed") or not self._elapsed("QuotaReserved", "successTTLDuration"):
            return
        if self._delete_components():
            work.set_condition("ResourcesDeployed", False, "Succeeded")

    # Components

    def _resource(self, component: Object) -> Resource | None:
        template = component.get("template") or {}
        return self._resources.get((str(template.get("apiVersion")), str(template.get("kind"))))

    def _name(self, number: int) -> str:
        metadata = value_at(self._components[number], ("template", "metadata")) or {}
        return str(metadata.get("name", f"{self._work.name}-{number}"))

    def _existing(self) -> Iterator[tuple[Object, str, Resource | None, Object | None]]:
        """Each component: its entry, name, resource (None if unknown), and object (None if there is none)."""
        for number, component in enumerate(self._components):
            resource, name = self._resource(component), self._name(number)
            yield component, name, resource, self._work.child(resource, name) if resource else None

    def _delete_components(self) -> bool:
        """Delete the components; whether they and their pods are gone."""
        work, gone = self._work, not self._pods
        for _component, _name, resource, found in self._existing():
            if resource is not None and found is not None:
                work.delete(resource, found)
                gone = False
        if not gone:
            work.set_condition("DeletingResources", True, "DeletionInitiated")
        return gone

    def _template(self, number: int) -> Object:
        """The object of a component, its pods labelled and with what the admission gives them."""
        work, component = self._work, self._components[number]
        result: Object = component
        infos = component.get("podSetInfos") or []
        mine = [one for one in wrapped_pod_sets(work.job) if one.component == number]
        for index, found in enumerate(mine):
            info = infos[index] if index < len(infos) else {}
            result = with_value(result, found.at, self._merged(value_at(component, found.at) or {}, info))
        template: Object = dict(result["template"])
        metadata = dict(template.get("metadata") or {})
        metadata["labels"] = {**(metadata.get("labels") or {}), WRAPPER_LABEL: work.name}
        metadata["name"] = self._name(number)
        metadata.pop("namespace", None)
        return {**template, "metadata": metadata}

    def _merged(self, template: Object, info: Mapping[str, Any]) -> Object:
        result: Object = template
        labels = {WRAPPER_LABEL: self._work.name, **(info.get("labels") or {})}
        maps: tuple[tuple[Place, Mapping[str, Any]], ...] = (
            (("metadata", "labels"), labels),
            (("metadata", "annotations"), info.get("annotations") or {}),
            (("spec", "nodeSelector"), info.get("nodeSelector") or {}),
        )
        for place, added in maps:
            if added:
                result = with_value(result, place, {**(value_at(result, place) or {}), **added})
        for field in ("tolerations", "schedulingGates"):
            if info.get(field):
                known = value_at(result, ("spec", field)) or []
                extra = [one for one in info[field] if one not in known]
                result = with_value(result, ("spec", field), [*known, *extra])
        return result
