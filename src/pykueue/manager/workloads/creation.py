"""Creating the Workload of a job, for the controllers of all kinds."""

from __future__ import annotations

from pykueue.api.objects import Object, key_of
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, EventRecorder
from pykueue.manager.cluster import Cluster
from pykueue.manager.writes import Writer


async def create_workload(
    cluster: Cluster, writer: Writer, recorder: EventRecorder, job: Object, workload: Object
) -> None:
    """Create the Workload and record that at its job; nothing where a Workload of that name exists.

    Such a Workload is on its way to the cache, or it is being deleted. Raises ApiError.
    """
    try:
        created = await writer.create(cluster.workloads, workload)
    except ApiError as error:
        if error.already_exists:
            return
        raise
    namespace, name = key_of(created)
    recorder.event(job, NORMAL, "CreatedWorkload", f"Created Workload: {namespace}/{name}")
