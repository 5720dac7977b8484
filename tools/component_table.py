"""Keep the table of the manager's components in docs/develop/components.md as they declare themselves.

Usage: python tools/component_table.py --check | --write
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from pykueue.api.crds.generated_files import with_table, write_or_check_files
from pykueue.jobs.kinds import BUILT_IN
from pykueue.manager.components import Component
from pykueue.manager.components.builtin import components
from pykueue.manager.configuration import Configuration
from pykueue.manager.rights import merged

PAGE = Path(__file__).resolve().parent.parent / "docs" / "develop" / "components.md"
BEGIN = "<!-- components -->\n"

#: A job kind of each sort. The other kinds add one component each, like that of Job.
FRAMEWORKS = ("batch/job", "pod", "statefulset")


def table(found: Iterable[Component]) -> list[str]:
    """One row for each component."""
    rows = ["| component | purpose | watches | writes | workers |", "|---|---|---|---|---|"]
    for component in found:
        watches = ", ".join(sorted({resource.plural for resource in component.watches}))
        writes = "; ".join(
            f"{', '.join(rule.verbs)} {', '.join(rule.resources)}" for rule in merged(component.writes)
        )
        workers = f"{component.workers}" if component.needs_leader else f"{component.workers}, every replica"
        rows.append(f"| `{component.name}` | {component.purpose} | {watches} | {writes} | {workers} |")
    return rows


def page() -> str:
    """The page with its table as it should be."""
    rows = table(components(Configuration(), BUILT_IN.enabled(FRAMEWORKS)))
    return with_table(PAGE.read_text(), BEGIN, rows)


if __name__ == "__main__":
    sys.exit(write_or_check_files("tools.component_table", {PAGE: page().encode()}))
