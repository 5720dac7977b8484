"""`pykueue importer import`: creates admitted Workloads for running pods."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from pykueue.api.validation.syntax import label_errors
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.config import ConfigError, load
from pykueue.kube.errors import ApiError, first_error
from pykueue.kube.limiter import TokenBucket
from pykueue.satellites.importer import Importer, Options, Summary
from pykueue.satellites.mapping import MappingError, Rule, rules_for_label, rules_of

from .options import kubeconfig_option
from .plugin.options import values_of


@click.group()
def importer() -> None:
    """Import objects that are already running."""


@importer.command("import")
@click.option("-n", "--namespace", "namespaces", multiple=True, required=True, help="Namespace; repeatable.")
@click.option("--queuelabel", default="", help="Label of pods whose values --queuemapping maps.")
@click.option("--queuemapping", multiple=True, metavar="VALUE=LOCALQUEUE,...", help="LocalQueues by value.")
@click.option("--queuemapping-file", type=click.Path(path_type=Path), help="File of mapping rules.")
@click.option("--add-labels", multiple=True, metavar="KEY=VALUE,...", help="Labels for pods and Workloads.")
@click.option(
    "--exclude-resource-prefixes", multiple=True, metavar="PREFIX,...", help="Resources that are not counted."
)
@click.option("--qps", default=50.0, show_default=True, help="Requests per second.")
@click.option("--burst", default=50, show_default=True, help="Requests in one burst.")
@click.option("-c", "--concurrent-workers", default=8, show_default=True, help="Pods imported concurrently.")
@click.option("--dry-run", default="true", metavar="true|false", show_default=True, help="Check only.")
@click.option("-v", "--verbose", count=True, help="Name all pods with a problem, not only the first.")
@kubeconfig_option
def import_(
    namespaces: tuple[str, ...], dry_run: str, verbose: int, kubeconfig: Path | None, **flags: Any
) -> None:
    """Check that the running pods of the namespaces can be imported, and import them.

    The framework `pod` of the manager must be disabled meanwhile. No pod is imported while one of them
    cannot be; the exit code is 1 then.
    """
    if dry_run.lower() not in ("true", "false"):
        raise click.UsageError(f"--dry-run: {dry_run!r}; accepted values: true, false")
    if flags["concurrent_workers"] < 1 or flags["burst"] < 1 or flags["qps"] <= 0:
        raise click.UsageError("--concurrent-workers and --burst must be at least 1, --qps greater than 0")
    options = Options(
        list(dict.fromkeys(values_of(namespaces))),
        _rules(flags),
        _labels(flags["add_labels"]),
        tuple(values_of(flags["exclude_resource_prefixes"])),
        flags["concurrent_workers"],
    )

    async def main() -> bool:
        transport = await load(kubeconfig, user_agent="pykueue-importer")
        try:
            clock = Clock()
            client = Client(transport, TokenBucket(clock, flags["qps"], flags["burst"]), clock=clock)
            work = Importer(client, options, clock)
            await work.load()
            checked = await work.check()
            _report("checked", checked, verbose)
            if checked.problems or dry_run.lower() == "true":
                if not checked.problems:
                    click.echo(
                        '"dry-run" is enabled by default, use "--dry-run=false" to continue with the import'
                    )
                return not checked.problems
            imported = await work.run()
            _report("imported", imported, verbose)
            return not imported.problems
        finally:
            await transport.close()

    try:
        succeeded = asyncio.run(main())
    except* (ApiError, ConfigError, ConnectionError, TimeoutError) as errors:
        raise click.ClickException(str(first_error(errors))) from None
    if not succeeded:
        sys.exit(1)


def _report(verb: str, summary: Summary, verbose: int) -> None:
    """One line of numbers on standard output; one line for each problem on standard error."""
    done = summary.checked - summary.skipped - summary.failed
    click.echo(f"{summary.checked} pods: {done} {verb}, {summary.skipped} skipped, {summary.failed} failed")
    for problem, pods in sorted(summary.problems.items()):
        shown = ", ".join(pods) if verbose else f"first {pods[0]}"
        click.echo(f"{problem} ({len(pods)} pods, {shown})", err=True)


def _rules(flags: dict[str, Any]) -> list[Rule]:
    label, pairs, path = flags["queuelabel"], flags["queuemapping"], flags["queuemapping_file"]
    if bool(label) != bool(pairs):
        raise click.UsageError("--queuelabel and --queuemapping go together")
    if bool(label) == bool(path):
        raise click.UsageError("give either --queuelabel and --queuemapping, or --queuemapping-file")
    if label:
        return rules_for_label(label, _pairs("--queuemapping", pairs))
    try:
        return rules_of(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeError) as error:
        raise click.ClickException(f"--queuemapping-file: {error}") from None
    except MappingError as error:
        raise click.ClickException(str(error)) from None


def _labels(texts: tuple[str, ...]) -> dict[str, str]:
    labels = _pairs("--add-labels", texts)
    errors = label_errors(labels, "--add-labels")
    if errors:
        raise click.UsageError("; ".join(str(error) for error in errors))
    return labels


def _pairs(flag: str, texts: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for part in values_of(texts):
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{flag}: {part!r} is not KEY=VALUE")
        found[key] = value
    return found
