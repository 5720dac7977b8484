"""The statement of fairness as one HTML file, which loads nothing and runs no script."""

from __future__ import annotations

from importlib import resources

import pykueue
from pykueue.api.durations import format_duration
from pykueue.engine.quota.usage import in_gibi, is_bytes
from pykueue.simulate.api import check_packages
from pykueue.simulate.recorded.fairness import Statement

_HOUR = 3600


def page(answer: Statement) -> str:
    """The text of the page. Raises MissingPackageError without the packages of the extra `reports`."""
    check_packages()
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["amount"] = lambda value, resource: amount(resource, value)
    environment.filters["time"] = lambda seconds: "–" if seconds is None else format_duration(round(seconds))
    template = environment.from_string(
        resources.files(__package__).joinpath("statement.html").read_text("utf-8")
    )
    style = resources.files(__package__).joinpath("report.css").read_text("utf-8")
    text: str = template.render(answer=answer, style=style, version=pykueue.__version__)
    return text


def amount(resource: str, unit_seconds: float) -> str:
    """Unit-seconds as people read them: hours of cpus and pieces, hours of Gi."""
    return f"{in_gibi(resource, unit_seconds / _HOUR):.2f} {'Gi-h' if is_bytes(resource) else 'h'}"
