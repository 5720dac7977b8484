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

    Such a Workload may be gone before the cache shows it, and no event would lead to the job again. Raises
    ApiError: AlreadyExists until the cache has it, so that the caller tries again.
    """
    try:
        created = await writer.create(cluster.workloads, workload)
    except ApiError as error:
        if not error.already_exists:
            raise
        await writer.reread(cluster.workloads, key_of(workload))
        if cluster.workload(key_of(workload)) is None:
            raise
        return
    namespace, name = key_of(created)
    recorder.event(job, NORMAL, "CreatedWorkload", f"Created Workload: {namespace}/{name}")
