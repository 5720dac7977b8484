"""`version`: of the client, and the image of the manager."""

from __future__ import annotations

import click

import pykueue
from pykueue.api.objects import get
from pykueue.api.resources import DEPLOYMENTS
from pykueue.extras import engine_is_compiled

from .options import Command
from .session import Session, run

#: Where Kueue and pykueue install the manager.
NAMESPACE, DEPLOYMENT, CONTAINER = "kueue-system", "kueue-controller-manager", "manager"


@click.command("version", cls=Command)
@click.pass_context
def version(ctx: click.Context, /) -> None:
    """Print the version of the client, and the image of the manager if it is installed."""
    click.echo(f"Client Version: v{pykueue.__version__}")
    click.echo(f"Decision Engine: {'compiled' if engine_is_compiled() else 'Python'}")

    async def work(session: Session) -> str:
        found = await session.client.find(DEPLOYMENTS, DEPLOYMENT, NAMESPACE) or {}
        containers = get(found, "spec", "template", "spec", "containers") or ()
        return next((one["image"] for one in containers if one["name"] == CONTAINER), "")

    image = run(ctx, work)
    if image:
        click.echo(f"Kueue Controller Manager Image: {image}")
