"""The ProvisioningRequest check (docs/reference/admission-checks.md, part B and 21.2)."""

from __future__ import annotations

from copy import deepcopy

import pytest
from manager_stack import QUEUES, Stack, story
from provisioning_world import CLASS, World, check_object, pod_set, provisioned

from autoscaler_definition import autoscaler_definition
from pykueue.api.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    CRDS,
    PROVISIONING_REQUEST_CONFIGS,
    PROVISIONING_REQUESTS,
    WORKLOADS,
)

GPU = "nvidia.com/gpu"
GPUS = QUEUES.replace("[cpu]", f"[cpu, {GPU}]").replace(
    "{name: cpu, nominalQuota: 10}", f"{{name: cpu, nominalQuota: 10}}, {{name: {GPU}, nominalQuota: 10}}"
)
KEEP = "featureGates: {CleanupProvisioningRequestsOnEviction: false}"


class TestLife:
    """Section 12."""

    def test_request_is_created_with_reservation_and_starts_the_job_when_provisioned(self) -> None:
        async def test(w: World) -> None:
            await w.submit(pods=3)
            assert await w.state() == ("Pending", "")
            workload = await w.stack.workload("a")
            request = await w.request()
            name = f"{workload['metadata']['name']}-prov-1"
            assert request["metadata"]["name"] == name
            assert request["metadata"]["labels"] == {"kueue.x-k8s.io/managed": "true"}
            assert request["metadata"]["ownerReferences"][0]["uid"] == workload["metadata"]["uid"]
            reference = {"name": f"ppt-{name}-main"}
            assert request["spec"] == {
                "provisioningClassName": CLASS,
                "podSets": [{"count": 3, "podTemplateRef": reference}],
            }
            template = (await w.templates())["main"]
            assert template["metadata"]["name"] == reference["name"]
            assert template["metadata"]["ownerReferences"][0]["uid"] == request["metadata"]["uid"]
            assert template["template"]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}}
            assert await w.stack.suspended("a")

            await w.answer("Accepted")
            assert await w.state() == ("Pending", "")
            await w.answer("Provisioned", "False", "ETA 10 minutes")
            assert await w.state() == ("Pending", "ETA 10 minutes")
            await w.answer("Provisioned", message="capacity is there")
            assert await w.state() == ("Ready", "capacity is there")
            assert not await w.stack.suspended("a")
            annotations = (await w.stack.job("a"))["spec"]["template"]["metadata"]["annotations"]
            assert annotations == {
                "kueue.x-k8s.io/workload": workload["metadata"]["name"],
                "autoscaling.x-k8s.io/consume-provisioning-request": name,
                "autoscaling.x-k8s.io/provisioning-class-name": CLASS,
            }
            events = await w.stack.events(workload["metadata"]["name"])
            assert "ProvisioningRequestCreated" in events
            assert "AdmissionCheckUpdated" in events

        provisioned(test)

    def test_failed_requests_are_retried_with_backoff_and_rejected_after_the_last(self) -> None:
        async def test(w: World) -> None:
            await w.submit()
            for attempt, delay in ((1, 60), (2, 120), (3, 240)):
                await w.answer("Failed", message="no capacity", attempt=attempt)
                found = await w.stack.conditions("a")
                assert found["Evicted"] == ("True", "AdmissionCheck")
                assert "Retrying after failure: no capacity" in await w.stack.message("a", "Evicted")
                assert found["QuotaReserved"][0] == "False"
                check = await w.check()
                assert (check["state"], check["retryCount"]) == ("Pending", attempt)
                assert check["requeueAfterSeconds"] == delay
                assert await w.requests() == {}
                await w.stack.settle(delay - 6)
                assert (await w.stack.conditions("a"))["QuotaReserved"][0] == "False"
                await w.stack.settle(8)
                assert list(await w.requests()) == [f"prov-{attempt + 1}"]
            await w.answer("Failed", message="no capacity", attempt=4)
            assert (await w.stack.workload("a"))["spec"]["active"] is False
            assert (await w.stack.conditions("a"))["Evicted"] == ("True", "DeactivatedDueToAdmissionCheck")
            assert await w.requests() == {}

        provisioned(test)

    def test_limit_of_zero_rejects_on_the_first_failure(self) -> None:
        async def test(w: World) -> None:
            await w.submit()
            await w.answer("Failed")
            assert (await w.stack.workload("a"))["spec"]["active"] is False

        provisioned(test, retryStrategy={"backoffLimitCount": 0})

    def test_preempted_while_ready_starts_again_with_the_first_attempt(self) -> None:
        async def test(w: World) -> None:
            await w.submit()
            await w.answer("Failed")
            await w.stack.settle(70)
            await w.answer("Provisioned", attempt=2)
            assert (await w.check())["retryCount"] == 1
            await self.drain(w)
            check = await w.check()
            assert check["state"] == "Pending"
            assert "retryCount" not in check
            assert "podSetUpdates" not in check
            assert list(await w.requests()) == ["prov-1"]

        provisioned(test)

    def test_evicted_while_pending_keeps_count_of_attempts(self) -> None:
        async def test(w: World) -> None:
            await w.submit()
            await w.answer("Failed")
            await w.stack.settle(70)
            assert list(await w.requests()) == ["prov-2"]
            before = (await w.request(2))["metadata"]["uid"]
            name = (await w.stack.workload("a"))["metadata"]["name"]
            await w.stack.patch(WORKLOADS, name, {"spec": {"active": False}})
            await w.stack.settle()
            assert await w.requests() == {}
            await w.stack.patch(WORKLOADS, name, {"spec": {"active": True}})
            await w.stack.settle()
            assert (await w.request(2))["metadata"]["uid"] != before

        provisioned(test)

    async def drain(self, w: World) -> None:
        """Evict what is admitted, and admit it again."""
        await w.stack.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "HoldAndDrain"}})
        await w.stack.settle()
        await w.stack.stop_pods("a")
        await w.stack.settle()
        await w.stack.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "None"}})
        await w.stack.settle()

    def test_booking_that_expires_before_admission_is_retried(self) -> None:
        async def test(w: World) -> None:
            other = {**check_object("other"), "spec": {"controllerName": "example.com/other"}}
            await w.stack.client.create(ADMISSION_CHECKS, other)
            active = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
            active["lastTransitionTime"] = w.stack.now()
            await w.stack.patch(ADMISSION_CHECKS, "other", {"status": {"conditions": [active]}}, "status")
            await w.on_queue("prov", "other")
            await w.submit()
            await w.answer("Provisioned")
            assert (await w.state())[0] == "Ready"
            await w.answer("BookingExpired", message="10 minutes are over")
            assert "Retrying after booking expired: 10 minutes are over" in await w.stack.message(
                "a", "Evicted"
            )
            await w.stack.settle(65)
            assert list(await w.requests()) == ["prov-2"]

        provisioned(test)

    def test_booking_that_expires_after_admission_changes_nothing(self) -> None:
        async def test(w: World) -> None:
            await w.submit()
            await w.answer("Provisioned")
            await w.answer("BookingExpired")
            assert (await w.state())[0] == "Ready"
            assert not await w.stack.suspended("a")

        provisioned(test)

    def test_capacity_revoked_after_admission_deactivates(self) -> None:
        async def test(w: World) -> None:
            await w.submit()
            await w.answer("Provisioned")
            await w.answer("CapacityRevoked", message="spot nodes are gone")
            assert (await w.stack.workload("a"))["spec"]["active"] is False
            assert "spot nodes are gone" in await w.stack.message("a", "Evicted")

        provisioned(test)

    def test_request_deleted_while_ready_is_not_created_again(self) -> None:
        async def test(w: World) -> None:
            await w.submit()
            await w.answer("Provisioned")
            await w.stack.delete(PROVISIONING_REQUESTS, (await w.request())["metadata"]["name"])
            await w.stack.settle()
            assert await w.requests() == {}
            assert (await w.state())[0] == "Ready"

        provisioned(test)

    def test_request_deleted_while_pending_is_created_again(self) -> None:
        async def test(w: World) -> None:
            await w.submit()
            before = await w.request()
            await w.stack.delete(PROVISIONING_REQUESTS, before["metadata"]["name"])
            await w.stack.settle()
            assert (await w.request())["metadata"]["uid"] != before["metadata"]["uid"]

        provisioned(test)

    @pytest.mark.parametrize(
        "change",
        [
            {"provisioningClassName": "queued.example.com"},
            {"parameters": {"p": "2"}},
        ],
    )
    def test_changed_configuration_replaces_a_pending_request(self, change: dict[str, str]) -> None:
        async def test(w: World) -> None:
            await w.submit()
            before = await w.request()
            await w.configure(**change)
            after = await w.request()
            assert after["metadata"]["uid"] != before["metadata"]["uid"]
            assert change.items() <= after["spec"].items()
            await w.answer("Provisioned")
            uid = (await w.request())["metadata"]["uid"]
            await w.configure(provisioningClassName="third.example.com")
            assert (await w.request())["metadata"]["uid"] == uid

        provisioned(test)

    def test_failed_request_that_is_kept_is_followed_by_the_next_attempt(self) -> None:
        async def test(w: World) -> None:
            await w.submit()
            await w.answer("Failed")
            assert list(await w.requests()) == ["prov-1"]
            await w.stack.settle(65)
            assert sorted(await w.requests()) == ["prov-2"]

        provisioned(test, KEEP)

    def test_class_that_no_autoscaler_answers_is_named_after_a_minute(self) -> None:
        async def test(w: World) -> None:
            await w.submit()
            assert await w.state() == ("Pending", "")
            await w.stack.settle(60)
            state, message = await w.state()
            assert state == "Pending"
            assert message.endswith(
                "-prov-1 was not accepted within 60 s: no autoscaler answers the provisioning class "
                "unknown.example.com (spec.provisioningClassName of the ProvisioningRequestConfig)"
            )
            await w.answer("Accepted")
            assert await w.state() == ("Pending", "")

        provisioned(test, provisioningClassName="unknown.example.com")

    def test_requests_of_a_finished_workload_are_deleted(self) -> None:
        async def test(w: World) -> None:
            await w.submit()
            await w.answer("Provisioned")
            await w.stack.finish_job("a")
            await w.stack.settle()
            assert await w.requests() == {}

        provisioned(test, KEEP)

    def test_error_of_creation_is_a_message_of_the_check_and_tried_again(self) -> None:
        async def test(w: World) -> None:
            await w.stack.delete(CRDS, autoscaler_definition()["metadata"]["name"])
            refusing = deepcopy(autoscaler_definition())
            version = refusing["spec"]["versions"][0]
            schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
            schema["properties"]["podSets"]["maxItems"] = 1
            await w.stack.settle()
            await w.stack.client.create(CRDS, refusing)
            await w.stack.settle(60)
            await w.create_workload(pod_set("one"), pod_set("two"))
            (check,) = (await w.stack.workload("w"))["status"]["admissionChecks"]
            assert check["message"].startswith("Error creating ProvisioningRequest w-prov-1: ")
            assert "FailedCreate" in await w.stack.events("w")

        provisioned(test)


class TestCases:
    """The worked cases of section 21.2, by number."""

    def test_case_21_only_pod_sets_with_managed_resources_are_requested(self) -> None:
        async def test(w: World) -> None:
            await w.create_workload(pod_set("launcher"), pod_set("worker", 2, **{GPU: "1"}))
            request = await w.request()
            (entry,) = request["spec"]["podSets"]
            assert entry == {"count": 2, "podTemplateRef": {"name": "ppt-w-prov-1-worker"}}
            await w.answer("Provisioned")
            (check,) = (await w.stack.workload("w"))["status"]["admissionChecks"]
            assert [one["name"] for one in check["podSetUpdates"]] == ["worker"]

        provisioned(test, queues=GPUS, managedResources=[GPU])

    def test_case_22_equal_templates_are_one_entry_whose_updates_reach_all_pod_sets(self) -> None:
        """Kueue gives the updates to the first pod set only, whose pods alone then use the capacity."""

        async def test(w: World) -> None:
            await w.create_workload(pod_set("master"), pod_set("worker", 3))
            (entry,) = (await w.request())["spec"]["podSets"]
            assert entry == {"count": 4, "podTemplateRef": {"name": "ppt-w-prov-1-master"}}
            await w.answer("Provisioned")
            (check,) = (await w.stack.workload("w"))["status"]["admissionChecks"]
            assert [one["name"] for one in check["podSetUpdates"]] == ["master", "worker"]

        provisioned(test, podSetMergePolicy="IdenticalPodTemplates")

    @pytest.mark.parametrize(
        ("policy", "counts"),
        [
            ({}, [1, 3]),
            ({"podSetMergePolicy": "IdenticalPodTemplates"}, [1, 3]),
            ({"podSetMergePolicy": "IdenticalWorkloadSchedulingRequirements"}, [4]),
        ],
    )
    def test_case_23_templates_that_differ_in_image(self, policy: dict[str, str], counts: list[int]) -> None:
        async def test(w: World) -> None:
            await w.create_workload(pod_set("master"), pod_set("worker", 3, image="other"))
            assert [one["count"] for one in (await w.request())["spec"]["podSets"]] == counts

        provisioned(test, **policy)

    def test_case_24_annotation_overrides_a_parameter_of_the_configuration(self) -> None:
        """In Kueue the request then counts as out of date, and is replaced again and again."""

        async def test(w: World) -> None:
            annotations = {"provreq.kueue.x-k8s.io/p": "2", "provreq.kueue.x-k8s.io/more": "x"}
            await w.submit(annotations=annotations)
            request = await w.request()
            assert request["spec"]["parameters"] == {"p": "2", "q": "1", "more": "x"}
            await w.stack.settle(60)
            assert (await w.request())["metadata"]["uid"] == request["metadata"]["uid"]

        provisioned(test, parameters={"p": "1", "q": "1"})

    def test_case_25_delays_double_up_to_the_maximum(self) -> None:
        async def test(w: World) -> None:
            await w.submit()
            for attempt, delay in enumerate((60, 120, 240, 480, 960, 1800), 1):
                await w.answer("Failed", attempt=attempt)
                assert (await w.check())["requeueAfterSeconds"] == delay
                await w.stack.settle(delay + 5)
            await w.answer("Failed", attempt=7)
            assert (await w.stack.workload("a"))["spec"]["active"] is False

        provisioned(
            test,
            retryStrategy={"backoffLimitCount": 6, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800},
        )

    def test_case_26_delay_counts_from_the_failure_however_long_the_check_was_pending(self) -> None:
        """In Kueue it counts from when the check became Pending, and the retry here is immediate."""

        async def test(w: World) -> None:
            await w.submit()
            await w.stack.settle(600)
            await w.answer("Failed")
            await w.stack.settle(50)
            assert await w.requests() == {}
            await w.stack.settle(10)
            assert list(await w.requests()) == ["prov-2"]

        provisioned(test)

    def test_case_27_detail_that_the_status_lacks_is_left_out(self) -> None:
        async def test(w: World) -> None:
            await w.submit()
            await w.answer("Provisioned", provisioningClassDetails={"pool": "blue"})
            (update,) = (await w.check())["podSetUpdates"]
            assert update["nodeSelector"] == {"example.com/pool": "blue"}
            selector = (await w.stack.job("a"))["spec"]["template"]["spec"]["nodeSelector"]
            assert selector == {"example.com/pool": "blue"}

        rules = [
            {"key": "example.com/pool", "valueFromProvisioningClassDetail": "pool"},
            {"key": "example.com/block", "valueFromProvisioningClassDetail": "block"},
        ]
        provisioned(test, podSetUpdates={"nodeSelector": rules})

    def test_case_29_deleted_configuration_makes_check_and_queue_inactive(self) -> None:
        async def test(w: World) -> None:
            await w.submit()
            await w.stack.delete(PROVISIONING_REQUEST_CONFIGS, "config")
            await w.stack.settle()
            assert await w.state() == ("Pending", "the check is not active")
            text = "ProvisioningRequestConfig config doesn't exist"
            assert await w.active() == ("False", "BadParametersRef", text)
            (condition,) = (await w.stack.cluster_queue())["status"]["conditions"]
            assert (condition["status"], condition["reason"]) == ("False", "AdmissionCheckInactive")

        provisioned(test)

    def test_case_30_failed_is_handled_before_revoked(self) -> None:
        async def test(w: World) -> None:
            await w.submit()
            request = (await w.request())["metadata"]["name"]
            conditions = [
                {
                    "type": kind,
                    "status": "True",
                    "reason": kind,
                    "message": kind,
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
                for kind in ("CapacityRevoked", "Failed")
            ]
            change = {"status": {"conditions": conditions}}
            await w.stack.patch(PROVISIONING_REQUESTS, request, change, "status")
            await w.stack.settle()
            assert (await w.stack.conditions("a"))["Evicted"] == ("True", "AdmissionCheck")

        provisioned(test)


class TestActivity:
    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            (
                None,
                "spec.parameters: required; must name a ProvisioningRequestConfig of the API group"
                " kueue.x-k8s.io",
            ),
            (
                {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "config"},
                "spec.parameters: MultiKueueConfig of the API group kueue.x-k8s.io; accepted:"
                " ProvisioningRequestConfig of the API group kueue.x-k8s.io",
            ),
            (
                {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "other"},
                "ProvisioningRequestConfig other doesn't exist",
            ),
        ],
    )
    def test_check_with_unusable_parameters_is_inactive(
        self, parameters: dict[str, str] | None, message: str
    ) -> None:
        async def test(w: World) -> None:
            assert (await w.active())[:2] == ("True", "Active")
            spec = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}
            check = {**check_object("bad"), "spec": spec}
            await w.stack.client.create(ADMISSION_CHECKS, check)
            await w.stack.settle()
            assert await w.active("bad") == ("False", "BadParametersRef", message)

        provisioned(test)

    def test_check_is_inactive_until_the_cluster_serves_provisioning_requests(self) -> None:
        async def life(s: Stack) -> None:
            w = World(s)
            await s.client.create(ADMISSION_CHECKS, check_object())
            await s.settle()
            text = "The cluster does not serve ProvisioningRequests (autoscaling.x-k8s.io/v1)"
            assert await w.active() == ("False", "ProvisioningRequestsNotServed", text)

        story(life)


class TestNeeds:
    def test_no_request_where_no_managed_resource_is_requested(self) -> None:
        async def test(w: World) -> None:
            await w.submit()
            assert await w.state() == ("Ready", "the provisioning request is not needed")
            assert "podSetUpdates" not in await w.check()
            assert await w.requests() == {}
            assert not await w.stack.suspended("a")

        provisioned(test, managedResources=[GPU])

    def test_template_has_what_flavors_add_and_limits_as_requests(self) -> None:
        flavored = GPUS.replace(
            "metadata: {name: default-flavor}",
            "metadata: {name: default-flavor}\nspec:\n  nodeLabels: {pool: gpu}\n"
            "  tolerations: [{key: gpu, operator: Exists}]",
        )

        async def test(w: World) -> None:
            container = {"name": "c", "image": "i", "resources": {"limits": {GPU: "1"}}}
            template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
            await w.submit(template=template)
            spec = (await w.templates())["main"]["template"]["spec"]
            assert spec["nodeSelector"] == {"pool": "gpu"}
            assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
            assert spec["containers"][0]["resources"]["requests"] == {GPU: "1"}

        provisioned(test, queues=flavored)

    def test_partially_admitted_job_requests_the_admitted_count(self) -> None:
        async def test(w: World) -> None:
            annotations = {"kueue.x-k8s.io/job-min-parallelism": "2"}
            await w.submit(pods=12, annotations=annotations)
            assert (await w.request())["spec"]["podSets"][0]["count"] == 10

        provisioned(test)

    def test_long_names_are_shortened_and_recognised(self) -> None:
        async def test(w: World) -> None:
            name = "a" * 245
            await w.stack.client.create(
                WORKLOADS,
                {
                    "apiVersion": "kueue.x-k8s.io/v1beta2",
                    "kind": "Workload",
                    "metadata": {"name": name, "namespace": "default"},
                    "spec": {"queueName": "lq", "podSets": [pod_set("main")]},
                },
            )
            await w.stack.settle()
            (request,) = (await w.stack.client.list(PROVISIONING_REQUESTS)).items
            assert len(request["metadata"]["name"]) == 253
            await w.stack.settle(60)
            (same,) = (await w.stack.client.list(PROVISIONING_REQUESTS)).items
            assert same["metadata"]["uid"] == request["metadata"]["uid"]

        provisioned(test)

    def test_check_added_to_a_running_workload_requests_nothing(self) -> None:
        async def test(w: World) -> None:
            await w.on_queue()
            await w.submit()
            await w.on_queue("prov")
            assert (await w.state())[0] == "Pending"
            assert not await w.stack.suspended("a")
            assert await w.requests() == {}

        provisioned(test)


def test_template_left_by_a_deleted_request_is_taken_over() -> None:
    async def test(w: World) -> None:
        await w.submit()
        await w.configure(provisioningClassName="other.example.com")
        await w.stack.settle(60)
        request, template = await w.request(), (await w.templates())["main"]
        assert template["metadata"]["ownerReferences"][0]["uid"] == request["metadata"]["uid"]

    provisioned(test)
