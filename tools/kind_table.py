"""Keep the table of job kinds in docs/use/kinds.md as the descriptions of the kinds say.

Usage: python tools/kind_table.py --check | --write
"""

from __future__ import annotations

import sys
from pathlib import Path

from pykueue.api.crds.generated_files import with_table, write_or_check_files
from pykueue.api.jobkinds import JobKind, PodSetPaths, field_path
from pykueue.jobs.base import JobIntegration, WorkloadSource
from pykueue.jobs.described import DescribedJob
from pykueue.jobs.kinds import BUILT_IN
from pykueue.jobs.pod import POD

PAGE = Path(__file__).resolve().parent.parent / "docs" / "use" / "kinds.md"
BEGIN = "<!-- kinds -->\n"
HEADER = (
    "| framework | kind | pod sets | suspended by | managed by | reclaimable pods | prebuilt Workload |",
    "|---|---|---|---|---|---|---|",
)

#: The pod sets of kinds for which paths do not say all.
IN_WORDS = {
    "trainer.kubeflow.org/trainjob": "those of the JobSet that its runtime makes of it",
    "workload.codeflare.dev/appwrapper": "`<name>-<number>`, one for each pod template inside",
    "pod": "`main`; of a group one for each role",
    "leaderworkerset.x-k8s.io/leaderworkerset": "of each group `leader`, `worker`, or `main`",
}


def pod_sets(source: WorkloadSource) -> str:
    """The names of the pod sets, in their order."""
    if source.kind.framework in IN_WORDS:
        return IN_WORDS[source.kind.framework]
    return ", ".join(_name(paths) for paths in source.kind.pod_sets)


def _name(paths: PodSetPaths) -> str:
    if paths.keys:
        return ", ".join(f"`{key.lower()}`" for key in paths.keys)
    if paths.each:
        return f"one for each of `{field_path(paths.each)}`"
    return f"`{paths.name}`"


def _suspended_by(kind: JobKind) -> str:
    return "scheduling gates of its pods" if kind.suspend is None else f"`{field_path(kind.suspend)}`"


def _row(source: WorkloadSource, job: JobIntegration | None) -> str:
    kind = source.kind
    reclaims = kind is POD or (
        job is not None and getattr(type(job), "reclaimable", None) is not DescribedJob.reclaimable
    )
    cells = (
        f"`{kind.framework}`",
        f"{kind.resource.api_version} {kind.resource.kind}",
        pod_sets(source),
        _suspended_by(kind),
        f"`{field_path(kind.managed_by)}`" if kind.managed_by else "",
        "yes" if reclaims else "",
        "yes" if job is not None and kind.prebuilt else "",
    )
    return f"| {' | '.join(cells)} |"


def page() -> str:
    """The page with its table as it should be."""
    rows = [_row(job, job) for job in BUILT_IN.jobs.values()]
    rows += [_row(owner, None) for owner in BUILT_IN.pod_owners.values()]
    return with_table(PAGE.read_text(), BEGIN, (*HEADER, *rows))


if __name__ == "__main__":
    sys.exit(write_or_check_files("tools.kind_table", {PAGE: page().encode()}))
