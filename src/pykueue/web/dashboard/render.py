"""Templates: every text is escaped, and what templates may call is listed here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from pykueue.api.ages import duration_text

from .charts.bars import usage_bar
from .pages.base import link
from .texts import amount, sentence, time_tag, tone, until_tag, yaml_text


def environment() -> Environment:
    """The environment of all templates."""
    found = Environment(
        loader=PackageLoader("pykueue.web.dashboard", "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"amount": amount, "yaml": yaml_text, "tone": tone, "sentence": sentence}
    found.globals |= {"usage_bar": usage_bar, "link": link, "ago": time_tag, "until": until_tag}
    found.globals["duration"] = duration_text
    return found


class Renderer:
    """Makes pages of templates."""

    def __init__(self) -> None:
        self._environment = environment()

    def page(self, template: str, context: Mapping[str, Any]) -> str:
        """A whole page."""
        return self._environment.get_template(template).render({**context, "frame": "_frame.html"})

    def content(self, template: str, context: Mapping[str, Any]) -> str:
        """What a page has inside its frame."""
        return self._environment.get_template(template).render({**context, "frame": "_content.html"})
