"""Completion of names: of namespaces and objects by the cluster, of contexts by the kubeconfig."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from pykueue.api.resources import Resource

#: Names at most that are read for one completion.
LIMIT = 100

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def complete(ctx: click.Context, what: str, incomplete: str) -> list[str]:
    """Namespaces, or contexts, clusters and users of the kubeconfig, that begin with a text."""
    from pykueue.api.resources import NAMESPACES
    from pykueue.kube.kubeconfig import ConfigError, default_files, names

    if what == "namespaces":
        return _of_cluster(ctx, NAMESPACES, incomplete)
    try:
        known = names(str(ctx.params.get("kubeconfig") or default_files()), what)
    except (ConfigError, OSError):
        return []
    return [name for name in known if name.startswith(incomplete)]


def shell(resource: Resource, *, keep: Callable[[dict[str, object]], bool] | None = None) -> Completer:
    """A completer of the names of a resource that were not typed before."""

    def names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        typed: Sequence[str] = ctx.params.get(param.name or "") or ()
        found = _of_cluster(ctx, resource, incomplete, keep)
        return [name for name in found if isinstance(typed, str) or name not in typed]

    return names


def _of_cluster(
    ctx: click.Context,
    resource: Resource,
    incomplete: str,
    keep: Callable[[dict[str, object]], bool] | None = None,
) -> list[str]:
    """Names in the cluster; none where it cannot be reached: a completion never prints errors."""
    from pykueue.kube.transport import Request

    from .session import Session, run

    ctx.obj = ctx.obj if isinstance(ctx.obj, dict) else {}
    given = ("namespace", "kubeconfig", "context", "cluster", "user", "server", "token")
    ctx.obj |= {name: ctx.params[name] for name in given if ctx.params.get(name)}

    async def work(session: Session) -> list[str]:
        path = resource.path(session.namespace if resource.namespaced else None)
        answer = await session.client.call(Request("GET", path, {"limit": str(LIMIT)}))
        items = answer.get("items") or ()
        return [one["metadata"]["name"] for one in items if keep is None or keep(one)]

    try:
        return [name for name in run(ctx, work) if name.startswith(incomplete)]
    except click.ClickException:
        return []


def script(root: click.Command, shell_name: str, program: str) -> str:
    """The script that switches completion on in a shell. Raises LookupError for a shell without one."""
    from click.shell_completion import get_completion_class

    if shell_name == "powershell":
        from .powershell import register

        register()
    found = get_completion_class(shell_name)
    if found is None:
        raise LookupError(shell_name)
    variable = f"_{program.replace('-', '_').replace('.', '_').upper()}_COMPLETE"
    return found(root, {}, program, variable).source()


def kubectl_answer(root: click.Command, words: Sequence[str]) -> list[str]:
    """The answer to kubectl for `kubectl kueue WORDS...<TAB>`: candidates, then `:4` for no files."""
    from click.shell_completion import ShellComplete

    *args, incomplete = words or [""]
    found = ShellComplete(root, {}, "kubectl-kueue", "_KUBECTL_KUEUE_COMPLETE").get_completions(
        args, incomplete
    )
    return [*(item.value for item in found if item.type == "plain"), ":4"]
