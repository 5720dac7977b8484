"""Links between the pages, and paths of pages in code and tests, lead to files and headings that exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")], key=lambda page: page.relative_to(ROOT).as_posix()
)
LINK = re.compile(r"\]\((?!https?://|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)")
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


@pytest.mark.parametrize("folder", ["src", "tests", "bench", "tools", "docs"])
def test_pages_that_are_named_by_path_exist(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in {".py", ".yaml", ".md"} and "data" not in path.parts:
            for mention in MENTION.findall(re.sub(r"https?://\S+", "", path.read_text())):
                assert (ROOT / mention).exists(), f"{path.relative_to(ROOT)} names {mention}"
