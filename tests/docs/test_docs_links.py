"""Links between pages and paths named in code lead to files and headings that exist; indexes are complete."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")], key=lambda page: page.relative_to(ROOT).as_posix()
)
LINK = re.compile(r"\]\((?!https?://|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)")
#: Paths of one machine, and files that are not part of a clone.
OUTSIDE = re.compile(
    r"\.\./shared\b|\B/work/\w|\bFOUND\.md\b|\bDESIGN\.md\b|(?<!\()(?<![\w/])reference/[\w-]+\.md"
)
MENTION = re.compile(r"\bdocs/[\w/-]+\.md\b")


@cache
def headings(page: Path) -> set[str]:
    """The anchors of a page as GitHub derives them from its headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def text_outside_code(page: Path) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_of_a_page_lead_to_files_and_headings_that_exist(page: Path) -> None:
    for path, anchor in LINK.findall(text_outside_code(page)):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        assert target.is_relative_to(ROOT), f"{path} is outside the repository"
        if anchor:
            assert anchor in headings(target), f"{path}#{anchor}"


def test_index_links_to_every_page_for_users_and_contributors() -> None:
    linked = {
        (ROOT / "docs" / path).resolve()
        for path, _ in LINK.findall((ROOT / "docs" / "README.md").read_text())
    }
    pages = {page for folder in ("use", "develop") for page in (ROOT / "docs" / folder).glob("*.md")}
    assert pages <= linked, sorted(page.name for page in pages - linked)
    assert not [
        page.name for page in (ROOT / "docs").glob("*.md") if page.name not in {"README.md", "glossary.md"}
    ]


#: A file of this repository in backticks: from its root, from src/pykueue, or by its name in the tests.
SOURCE_FILE = re.compile(r"`(?:python )?((?:[\w-]+/)*\w+\.py)(?:::\w+)*`")


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if "reference" not in page.parts],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_source_files_that_a_page_names_exist(page: Path) -> None:
    names = {path.name for folder in ("src", "tests", "bench") for path in (ROOT / folder).rglob("*.py")}
    for path in SOURCE_FILE.findall(page.read_text()):
        places = [ROOT / path, ROOT / "src/pykueue" / path, ROOT / "tests" / path]
        assert any(place.exists() for place in places) or path in names, path


@pytest.mark.parametrize("folder", ["src", "tests", "bench", "tools", "docs"])
def test_pages_that_are_named_by_path_exist(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in {".py", ".yaml", ".md"} and "data" not in path.parts:
            for mention in MENTION.findall(re.sub(r"https?://\S+", "", path.read_text())):
                assert (ROOT / mention).exists(), f"{path.relative_to(ROOT)} names {mention}"


def test_index_of_decisions_has_each_page_with_its_title() -> None:
    folder = ROOT / "docs" / "decisions"
    rows = re.findall(r"^\| \[(\d+)\]\((.+?)\) \| (.+) \|$", (folder / "README.md").read_text(), re.MULTILINE)
    titles = {page.name: page.read_text().partition("\n")[0] for page in folder.glob("0*.md")}
    assert {path: f"# {number}. {title}" for number, path, title in rows} == titles


def test_every_dependency_has_a_line_in_the_page_of_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    names = {re.split(r"[<>=!~\[; ]", each)[0].lower() for each in declared} - {"pykueue"}
    rows = re.findall(r"^\| (.+?) \|", (ROOT / "docs/develop/dependencies.md").read_text(), re.MULTILINE)
    written = {name.lower() for row in rows for name in row.split(", ")}
    assert names == written - {"package", "---"}


@pytest.mark.parametrize("folder", ["src", "tests", "bench", "tools", "docs", "charts", "examples", "."])
def test_nothing_names_files_outside_the_repository(folder: str) -> None:
    paths = (ROOT / folder).glob("*") if folder == "." else (ROOT / folder).rglob("*")
    for path in sorted(paths):
        if path.suffix in {".py", ".yaml", ".md", ".toml"} and path.is_file() and path != Path(__file__):
            found = OUTSIDE.search(path.read_text())
            assert found is None, f"{path.relative_to(ROOT)} names {found.group()}"
