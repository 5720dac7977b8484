"""`pykueue up --job-kinds`: which kinds of other projects are served."""

from __future__ import annotations

import pytest
from click import BadParameter, Context
from click.core import Option

from pykueue.cli.up import parse_job_kinds, up
from pykueue.cluster import JOB_KINDS

CONTEXT, OPTION = Context(up), Option(["--job-kinds"])


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("all", JOB_KINDS),
        ("none", ()),
        ("PyTorchJob", ("PyTorchJob",)),
        ("rayjob, MPIJOB", ("RayJob", "MPIJob")),
    ],
)
def test_kinds_are_named_in_any_case(text: str, kinds: tuple[str, ...]) -> None:
    assert parse_job_kinds(CONTEXT, OPTION, text) == kinds


@pytest.mark.parametrize("text", ["", "Pod", "all,PyTorchJob"])
def test_other_values_are_refused_with_those_that_are_accepted(text: str) -> None:
    with pytest.raises(
        BadParameter, match="accepted values: all, none, or some of JobSet, PyTorchJob"
    ) as caught:
        parse_job_kinds(CONTEXT, OPTION, text)
    assert repr(text) in str(caught.value)
