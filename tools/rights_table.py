"""Keep the table of the manager's rights in docs/use/security.md as its installation grants them.

Usage: python tools/rights_table.py --check | --write
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pykueue.api.crds.generated_files import with_table, write_or_check_files
from pykueue.api.objects import Object
from pykueue.manager.configuration import Configuration
from pykueue.manager.install.options import Options
from pykueue.manager.install.roles import manager_roles

PAGE = Path(__file__).resolve().parent.parent / "docs" / "use" / "security.md"
BEGIN = "<!-- rights -->\n"
HEADER = ("| role | API group | resources | verbs | only objects |", "|---|---|---|---|---|")

#: One job kind. The others add similar rights, on their own resources.
FRAMEWORKS = ("batch/job",)
#: Object names that a cell lists; of more it has the number.
NAMES_MAX = 2


def rows() -> Iterator[str]:
    """One row for each rule of the roles that are bound to the manager."""
    configuration = Configuration()
    integrations = replace(configuration.integrations, frameworks=FRAMEWORKS)
    options = Options(replace(configuration, integrations=integrations), "")
    for role in manager_roles(options):
        for rule in role.get("rules") or ():
            yield _row(role, rule)


def _row(role: Object, rule: Object) -> str:
    namespace = role["metadata"].get("namespace")
    names = rule.get("resourceNames") or ()
    listed = ", ".join(f"`{name}`" for name in names)
    cells = (
        f"`{role['metadata']['name']}`" + (f" in `{namespace}`" if namespace else ""),
        ", ".join(f"`{group}`" if group else "core" for group in rule["apiGroups"]),
        ", ".join(rule["resources"]),
        ", ".join(rule["verbs"]),
        listed if len(names) <= NAMES_MAX else f"{len(names)}, each by its name",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    page = with_table(PAGE.read_text(), BEGIN, (*HEADER, *rows()))
    sys.exit(write_or_check_files("tools.rights_table", {PAGE: page.encode()}))
