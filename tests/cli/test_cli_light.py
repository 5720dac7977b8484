"""What is installed without extras: small, and enough for all commands but those of the embedded cluster."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import Distribution, distribution
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pykueue.cli.main import COMMANDS, NEEDS
from pykueue.extras import EXTRAS

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "all-or-nothing"
#: Modules that only extras, and the tests, install.
OPTIONAL = sorted({module for modules in EXTRAS.values() for module in modules} | {"kubernetes_validate"})
#: Megabytes that the package and its dependencies may take, without extras.
LIMIT = 90


def without_extras(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python in which the modules of extras are not found."""
    blocked = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {OPTIONAL!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import importlib.util\n"
        "found = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name: None if name in {OPTIONAL!r} else found(name)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", blocked + program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return without_extras("from pykueue.cli.main import program\nprogram('pykueue')\n", *arguments)


def test_modules_of_all_other_commands_are_imported_without_extras() -> None:
    modules = sorted({module for name, (module, _) in COMMANDS.items() if name not in NEEDS})
    program = (
        f"import importlib\nfor one in {modules!r}:\n    importlib.import_module('pykueue.cli.' + one)\n"
    )
    done = without_extras(program)
    assert done.returncode == 0, done.stderr


def test_decisions_need_no_extra() -> None:
    done = command("schedule", "-f", str(EXAMPLE))
    assert done.returncode == 0, done.stderr
    assert "rules in CEL are not checked; install it with: pip install 'pykueue[cel]'" in done.stderr
    assert re.search(r"job1 .*Admit", done.stdout), done.stdout


def test_simulation_needs_no_extra() -> None:
    done = command("simulate", str(ROOT / "examples" / "simulate" / "starvation.yaml"))
    assert "needs the extra" not in done.stderr
    assert done.returncode in (0, 1), done.stderr  # 1: an assertion of the scenario does not hold


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_command_without_its_extra_names_the_command_that_installs_it(name: str) -> None:
    done = command(name)
    assert done.returncode == 1
    assert "needs the extra 'cluster' (cel_expr_python, uvloop, websockets)" in done.stderr
    assert "pip install 'pykueue[cluster]'" in done.stderr


def test_test_server_without_its_extra_names_the_command_that_installs_it() -> None:
    done = without_extras("import pykueue.testing")
    assert "pykueue.testing needs the extra 'cluster'; install it with: pip install" in done.stderr


def test_expression_of_a_job_kind_without_cel_is_an_error_of_its_field(tmp_path: Path) -> None:
    kind = tmp_path / "kind.yaml"
    kind.write_text(
        """
apiVersion: pykueue.io/v1alpha1
kind: JobKind
metadata: {name: trainings.example.com}
spec:
  group: example.com
  version: v1
  kind: Training
  plural: trainings
  suspend: .spec.suspend
  podSets:
    - {name: main, template: .spec.template, count: self.spec.replicas * 2}
  finished: {condition: Complete}
"""
    )
    done = command("schedule", "-f", str(kind))
    assert done.returncode == 2, done.stderr
    assert "the library for CEL is missing; install it with: pip install 'pykueue[cel]'" in done.stderr


def requirements(name: str) -> list[str]:
    """Names of the packages that a package needs here, without extras."""
    if name == "pykueue":  # of an editable installation, the metadata may be old
        lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    else:
        lines = distribution(name).requires or []
    found = map(Requirement, lines)
    return [one.name for one in found if one.marker is None or one.marker.evaluate({"extra": ""})]


def closure(name: str, seen: dict[str, Distribution]) -> dict[str, Distribution]:
    """A package and all that it needs, by normalized name."""
    key = canonicalize_name(name)
    if key not in seen:
        seen[key] = distribution(name)
        for needed in requirements(key):
            closure(needed, seen)
    return seen


def installed_size(of: Distribution) -> int:
    """Bytes of its files, with the compiled modules that an installation writes."""
    paths = {Path(str(file.locate())) for file in of.files or ()}
    if of.metadata["Name"] == "pykueue":  # an editable installation has no list of its files
        paths |= {path for path in (ROOT / "src" / "pykueue").rglob("*") if "__pycache__" not in path.parts}
    sources = {path for path in paths if path.suffix == ".py"}
    paths |= {Path(cache_from_source(str(path))) for path in sources}
    return sum(path.stat().st_size for path in paths if path.is_file())


def test_package_and_its_dependencies_are_small() -> None:
    sizes = {name: installed_size(each) / 1e6 for name, each in closure("pykueue", {}).items()}
    assert len(sizes) > 10
    assert not {"uvloop", "cel-expr-python", "kubernetes-asyncio", "kubernetes-validate"} & set(sizes)
    assert sum(sizes.values()) <= LIMIT, {name: round(size, 1) for name, size in sizes.items()}


def test_server_without_the_manager_does_not_import_the_engine() -> None:
    program = (
        "import sys\nimport pykueue.cli.up\n"
        "unwanted = ('pykueue.engine', 'pykueue.manager.manager', 'pykueue.simulate', 'pykueue.questions',\n"
        "    'pykueue.web.dashboard.server', 'pykueue.web.dashboard.state', 'jinja2', 'aiohttp.web')\n"
        "print([name for name in sys.modules if name.startswith(unwanted)])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_commands_that_only_ask_an_api_server_do_not_import_a_general_http_client() -> None:
    others = {"dashboard", "manager", *NEEDS}  # which serve pages or webhooks
    modules = sorted({module for name, (module, _) in COMMANDS.items() if name not in others})
    program = (
        f"import importlib, sys\nfor one in {modules!r}:\n    importlib.import_module('pykueue.cli.' + one)\n"
        "import pykueue.cli.connection, pykueue.cli.shadow\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('aiohttp', 'yarl')])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_manager_imports_what_makes_certificates_only_where_it_makes_one() -> None:
    program = (
        "import sys\nimport pykueue.cli.manager, pykueue.cli.satellites\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'cryptography'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_garbage_collector_leaves_modules_alone_that_a_command_imports() -> None:
    program = (
        "import gc, sys\n"
        "from pykueue.cli.main import program\n"
        "during_imports = []\n"
        "def searched(phase, info):\n"
        "    module = sys.modules.get('pykueue.cli.schedule')\n"
        "    during_imports.append(module is None or module.__spec__._initializing)\n"
        "gc.callbacks.append(searched)\n"
        "try:\n"
        "    program('pykueue')\n"
        "finally:\n"
        "    print(gc.isenabled(), gc.get_freeze_count() > 50_000, sum(during_imports))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "schedule", "-f", str(EXAMPLE)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith("\nTrue True 0\n"), done.stdout
