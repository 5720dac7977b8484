"""Runs by seed from the command line; see `--help`."""

from __future__ import annotations

import gc
import hashlib
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import click

from pykueue.simulate.faults import Report, play
from pykueue.simulate.faults.batches import reports
from pykueue.simulate.faults.budgetruns import play_budgets
from pykueue.simulate.faults.claimruns import play_claims
from pykueue.simulate.faults.clusterruns import chosen_of_clusters, play_clusters
from pykueue.simulate.faults.elasticruns import play_elastic
from pykueue.simulate.faults.hybridruns import play_hybrid
from pykueue.simulate.faults.kindruns import chosen, play_kinds
from pykueue.simulate.faults.podruns import play_pods
from pykueue.simulate.faults.provisioningruns import play_provisioning
from pykueue.simulate.faults.topologyruns import play_topology
from pykueue.simulate.faults.variantruns import play_variants
from pykueue.simulate.runs import GC_THRESHOLD


@click.command()
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the (first) run.")
@click.option(
    "--runs", type=int, default=1, show_default=True, help="Number of runs, with consecutive seeds."
)
@click.option(
    "--seconds", type=float, default=None, help="Start no further run after this many seconds of real time."
)
@click.option("--trace", is_flag=True, help="Print every event of the run, also without a violation.")
@click.option("--pods", is_flag=True, help="Use the embedded Job controller, scheduler and nodes.")
@click.option("--plain-pods", is_flag=True, help="Run plain pods and pod groups as jobs.")
@click.option(
    "--kinds",
    default="",
    help="Run jobs of these kinds, by name and separated by commas, or of `all` kinds; with --clusters too.",
)
@click.option("--elastic", is_flag=True, help="Run elastic jobs that change their size.")
@click.option("--clusters", is_flag=True, help="Dispatch jobs to worker clusters (MultiKueue).")
@click.option("--topology", is_flag=True, help="Place pods by topology on nodes that fail.")
@click.option("--claims", is_flag=True, help="Run pods that claim devices.")
@click.option("--provisioning", is_flag=True, help="Let jobs wait for ProvisioningRequests.")
@click.option("--variants", is_flag=True, help="Let jobs compete for each flavor (concurrent admission).")
@click.option("--policies", is_flag=True, help="Limit preemptions by a PreemptionPolicy.")
@click.option("--backfill", is_flag=True, help="Reserve capacity for workloads that do not fit yet.")
@click.option("--budgets", is_flag=True, help="Count what workloads use of a Budget.")
@click.option("--hybrid", is_flag=True, help="Split the pods of jobs over flavors.")
@click.option("--edits", is_flag=True, help="Users also edit statuses, annotations and finalizers by hand.")
@click.option("--keep-going", is_flag=True, help="Continue after a failure.")
def main(
    seed: int,
    runs: int,
    seconds: float | None,
    trace: bool,
    pods: bool,
    plain_pods: bool,
    kinds: str,
    elastic: bool,
    clusters: bool,
    topology: bool,
    claims: bool,
    provisioning: bool,
    variants: bool,
    policies: bool,
    backfill: bool,
    budgets: bool,
    hybrid: bool,
    edits: bool,
    keep_going: bool,
) -> None:
    """Run the cluster with faults in virtual time; exit with 1 when an invariant was violated."""
    gc.set_threshold(*GC_THRESHOLD)  # of the first run; later ones collect nothing
    started = time.perf_counter()
    faults: Counter[str] = Counter()
    failed: list[int] = []
    writes = ended = deaths = 0
    digests = hashlib.sha256()
    if clusters:
        player: Callable[[int], Report] = partial(
            play_clusters, elastic=elastic, kinds=chosen_of_clusters(kinds or "Job")
        )
    elif kinds:
        player = partial(play_kinds, kinds=chosen(kinds), edits=edits)
    elif elastic:
        player = play_elastic
    elif topology:
        player = play_topology
    elif claims:
        player = play_claims
    elif budgets:
        player = play_budgets
    elif hybrid:
        player = play_hybrid
    elif provisioning:
        player = play_provisioning
    elif variants:
        player = play_variants
    elif plain_pods:
        player = partial(play_pods, edits=edits)
    else:
        player = partial(play, pods=pods, edits=edits, policies=policies, backfill=backfill)
    for report in reports(player, range(seed, seed + runs)):
        number = report.seed
        ended, writes, deaths = ended + 1, writes + report.writes, deaths + report.deaths
        faults += report.faults
        digests.update(report.digest.encode())
        if report.violations:
            failed.append(number)
            shown = report.text() if runs == 1 or not keep_going else f"seed {number}: {report.violations}"
            click.echo(shown)
            if not keep_going:
                break
        elif trace:
            click.echo(report.text())
        if seconds is not None and time.perf_counter() - started > seconds:
            break
    took = time.perf_counter() - started
    click.echo(f"took {took:.1f} s, {took / max(1, ended) * 1000:.0f} ms each", err=True)
    click.echo(
        f"{ended} runs, {writes} writes checked, {deaths} restarts, faults: {dict(sorted(faults.items()))}; "
        f"digest {digests.hexdigest()[:16]}; {len(failed)} failed: {failed[:50]}"
    )
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
