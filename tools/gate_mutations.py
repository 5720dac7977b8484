"""Check that the test which docs/use/feature-gates.md names for a gate fails if the gate is ignored.

Usage: python tools/gate_mutations.py [GATE ...]

Each test is run with the gate stuck at on and stuck at off, whatever configurations say; both runs must fail.
Without arguments all gates are tried, which takes about ten minutes. The exit code is 1 if a test passed, and
2 for a gate without a test.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "use" / "feature-gates.md"
#: A gate with an effect, and what shows it.
ROW = re.compile(r"\| (\w+) \| (?:on|off) \| (?!None: ).* \| (.*) \|")
TEST = re.compile(r"`([\w/]+\.py::\w+)`")
RECORDED = (
    "conformance/test_gates_recorded.py::test_recorded_scenario_has_another_result_if_the_gate_is_flipped"
)
_PASSED, _FAILED = 0, 1


def tests() -> dict[str, str]:
    """By gate: the test that shows it, below `tests`."""
    rows = [match for line in TABLE.read_text().splitlines() if (match := ROW.fullmatch(line))]
    found = {}
    for gate, shown in (row.groups() for row in rows):
        if shown.startswith("recorded in "):
            found[gate] = RECORDED
        elif match := TEST.fullmatch(shown):
            found[gate] = match[1]
    return found


def force(gate: str, value: bool) -> None:
    """Let every part that consults the gate get this value."""
    from pykueue.api import defaults
    from pykueue.api.validation import gates, quotas, workloads
    from pykueue.engine.options import Options
    from pykueue.jobs.kinds import JobKinds
    from pykueue.manager.configuration import Configuration
    from pykueue.manager.configuration.gates import FeatureGates

    on, enabled, kinds = gates.on, Options.enabled, JobKinds.enabled

    def forced_on(chosen: Any, name: str) -> bool:
        return value if name == gate else on(chosen, name)

    for module in (gates, defaults, quotas, workloads):
        module.on = forced_on

    def forced_enabled(self: Options, name: str) -> bool:
        return value if name == gate else enabled(self, name)

    def forced_kinds(self: JobKinds, frameworks: Any, chosen: Any = None) -> JobKinds:
        return kinds(self, frameworks, {**(chosen or {}), gate: value})

    def forced_gates(self: Configuration) -> FeatureGates:
        return FeatureGates({**self.feature_gates, gate: value})

    Options.enabled = forced_enabled
    JobKinds.enabled = forced_kinds
    Configuration.gates = property(forced_gates)


def run(gate: str, value: bool, test: str) -> int:
    """Run the test with the gate stuck at a value, in a process of its own; the exit code of pytest."""
    command = [sys.executable, __file__, "--run", gate, "on" if value else "off", test]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode


class OfGate:
    """Of a test with a case for each of several gates, only the case of one gate is run."""

    def __init__(self, gate: str) -> None:
        self._gate = gate

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Called by pytest."""
        own = [item for item in items if self._gate in item.name.partition("[")[2].rstrip("]").split("-")]
        items[:] = own or items


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--run"]:
        import pytest

        _, gate, value, node = arguments
        force(gate, value == "on")
        return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", f"tests/{node}"], [OfGate(gate)]))
    shown = tests()
    if without := [gate for gate in arguments if gate not in shown]:
        print(f"{', '.join(without)}: no such gate, or none with an effect, in docs/use/feature-gates.md")
        return 2
    faults = 0
    for gate in arguments or shown:
        for value in (True, False):
            code = run(gate, value, shown[gate])
            if code != _FAILED:
                faults += 1
                result = "passes" if code == _PASSED else f"ends with exit code {code}"
                print(f"{gate}: {shown[gate]} {result} if the gate is always {'on' if value else 'off'}")
    print(f"{len(arguments or shown)} gates, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
