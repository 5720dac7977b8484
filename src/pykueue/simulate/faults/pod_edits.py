"""Users of pods who also write by hand what controllers, nodes and the scheduler own."""

from __future__ import annotations

from typing import Any

from pykueue.api.objects import get
from pykueue.api.pods import is_terminal
from pykueue.api.resources import PODS
from pykueue.jobs.identifiers import IDENTIFIERS
from pykueue.jobs.pod import is_gated

from .edits import EditingUsers
from .pod_users import PodUsers


class EditingPodUsers(PodUsers, EditingUsers):
    """Users who edit Workloads, queues and pods by hand, as often as all else they do."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        pod_edits = (self._end_pod, self._end_pod, self._remove_pod_finalizers, self._clear_pod_status)
        self._acts = (*self._acts, *self._workload_edits, *pod_edits)

    async def _end_pod(self) -> str:
        """Say that a pod has ended that runs."""
        pod = await self._one(PODS, lambda pod: not is_gated(pod) and not is_terminal(pod))
        if pod is None:
            return ""
        phase = self._rng.choice(("Succeeded", "Failed"))
        await self._edit(PODS, pod, {"status": {"phase": phase}}, "status")
        return f"sets phase {phase} of pod {pod['metadata']['name']}"

    async def _clear_pod_status(self) -> str:
        pod = await self._one(PODS, lambda pod: not is_terminal(pod))
        if pod is None:
            return ""
        await self._edit(PODS, pod, {"status": None}, "status")
        return f"clears the status of pod {pod['metadata']['name']}"

    async def _remove_pod_finalizers(self) -> str:
        """Not of pods of groups: those without are how the users know that their group has ended."""
        pod = await self._one(
            PODS, lambda pod: not IDENTIFIERS.group_name(pod) and get(pod, "metadata", "finalizers")
        )
        if pod is None:
            return ""
        await self._edit(PODS, pod, {"metadata": {"finalizers": None}})
        return f"removes the finalizers of pod {pod['metadata']['name']}"
