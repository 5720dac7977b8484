"""`pykueue why` on manifests: text, data and exit status."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import pytest
import yaml
from click.testing import CliRunner, Result
from schedule_inputs import QUEUES, workload

from pykueue.cli.questions import why


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    text = "---\n".join([QUEUES, *(yaml.safe_dump(workload(name, 1)) for name in ("a", "b", "c", "d", "e"))])
    (tmp_path / "all.yaml").write_text(text)
    return tmp_path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(why, [str(each) for each in arguments])


def test_text_has_the_facts_and_the_changes(manifests: Path) -> None:
    result = run("e", "-n", "team", "-f", manifests)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == "Workload team/e: Pending"
    assert any("insufficient unused quota for cpu in flavor default, 1 more needed" in line for line in lines)
    assert any(line.startswith("  - raise nominalQuota of ClusterQueue cq by 1 cpu") for line in lines)


def test_data_follows_the_printed_schema(manifests: Path) -> None:
    schema = json.loads(run("--print-schema").output)
    data = json.loads(run("e", "-n", "team", "-f", manifests, "-o", "json").output)
    jsonschema_rs.validate(schema, data)
    assert yaml.safe_load(run("e", "-n", "team", "-f", manifests, "-o", "yaml").output) == data
    assert data["head"]["changes"]
    data["head"]["outcome"] = "Perhaps"
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(schema, data)


def test_unknown_names_are_one_line_and_status_1(manifests: Path) -> None:
    result = run("absent", "-n", "team", "-f", manifests)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: no Workload or job absent in namespace team\n"


def test_wrong_manifests_are_status_2(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("kind: [")
    result = run("w", "-f", tmp_path / "wrong.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"{tmp_path}/wrong.yaml")


def test_output_on_the_page_is_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)
    page = (root / "docs" / "use" / "why.md").read_text()
    _, _, shown = page.partition("$ pykueue why job/training -f examples/why\n")
    assert run("job/training", "-f", "examples/why").output == shown.partition("```")[0]
