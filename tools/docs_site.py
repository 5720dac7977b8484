"""Hooks of MkDocs: the navigation from the index of pages, and pages for files outside docs/.

The index (docs/README.md) has a table of pages for each section: a heading of level 2 becomes a tab, a line
that ends in a colon before a table becomes a group. Links that leave docs/ lead to pages made here: the
project page, the changelog, one page for each example with its files. Mermaid blocks become the pictures
that tools/diagrams.py draws.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from diagrams import BLOCK, picture
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"

#: Files of the project that are pages of the site.
PAGES = {"README.md": "project.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}

_LINK = re.compile(r"(\]\()(?!https?://|mailto:|#)([^)\s#]+)(#[^)\s]*)?(\))")
_IMAGE = re.compile(r"(<img[^>]* src=\")(?!https?://)([^\"]+)(\")")
_FENCE = re.compile(r"(^```.*?^```[ ]*$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| \[(?P<title>[^\]]+)\]\((?P<path>[^)]+)\) \|")


def navigation(index: str) -> list[Any]:
    """The navigation that an index of pages describes."""
    tabs: list[Any] = []
    groups: list[Any] = []
    pages: list[Any] = []
    for line in index.splitlines():
        if line.startswith("## "):
            groups = pages = []
            tabs.append({line[3:]: groups})
        elif line.endswith(":") and not line.startswith("|") and tabs:
            pages = []
            groups.append({line[:-1]: pages})
        elif (row := _ROW.match(line)) is not None and tabs:
            target = site_path(DOCS / row["path"])
            folder = posixpath.dirname(target)
            if posixpath.basename(target) == "README.md" and folder:
                pages.append({row["title"]: [target, *_others(folder)]})
            else:
                pages.append({row["title"]: target})
    return [{"Start": ["README.md", *tabs[0]["Start"]]}, *tabs[1:]]


def _others(folder: str) -> list[str]:
    """The pages of a folder of the site besides its README."""
    if folder == "examples":
        return [f"examples/{path.name}.md" for path in _examples()]
    return [
        f"{folder}/{path.name}" for path in sorted((DOCS / folder).glob("*.md")) if path.name != "README.md"
    ]


def site_path(path: Path) -> str:
    """Where a file of the project is in the site: a page, or a file that is copied."""
    path = path.resolve()
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    relative = path.relative_to(ROOT).as_posix()
    if relative in PAGES:
        return PAGES[relative]
    if path == EXAMPLES:
        return "examples/README.md"
    if path.is_relative_to(EXAMPLES):
        parts = path.relative_to(EXAMPLES).parts
        single = len(parts) == 1 and path.is_file()
        return "examples/README.md" if single else f"examples/{parts[0]}.md"
    return f"files/{relative}"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the navigation."""
    config.nav = navigation((DOCS / "README.md").read_text())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages for files outside docs/, and the files that pages link to."""
    for name, target in PAGES.items():
        files.append(File.generated(config, target, content=(ROOT / name).read_text()))
    for folder in _examples():
        files.append(File.generated(config, f"examples/{folder.name}.md", content=_example(folder)))
    files.append(File.generated(config, "examples/README.md", content=_examples_index()))
    for page in [*DOCS.rglob("*.md"), *(ROOT / name for name in PAGES)]:
        for path in _outside(page):
            if files.get_file_from_path(site_path(path)) is None:
                files.append(File.generated(config, site_path(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links that leave docs/ lead to the pages of the site."""
    source = _source(page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri) or "."

    def replaced(match: re.Match[str]) -> str:
        path = (source / match[2]).resolve()
        if not path.exists():
            return match[0]  # MkDocs reports it
        anchor = match[3] if match.lastindex == 4 else None
        if path.is_relative_to(EXAMPLES) and path.is_file() and path.suffix != ".md":
            anchor = f"#{_anchor(path.name)}"
        target = posixpath.relpath(site_path(path), here)
        return f"{match[1]}{target}{anchor or ''}{match[match.lastindex or 3]}"

    def drawn(match: re.Match[str]) -> str:
        return f"![Sequence diagram]({posixpath.relpath(f'images/{picture(match[1])}', here)})"

    parts = _FENCE.split(BLOCK.sub(drawn, markdown))
    return "".join(
        part if number % 2 else _IMAGE.sub(replaced, _LINK.sub(replaced, part))
        for number, part in enumerate(parts)
    )


def _source(uri: str) -> Path:
    """The folder that links of a page are relative to."""
    for name, target in PAGES.items():
        if uri == target:
            return (ROOT / name).parent
    if uri == "examples/README.md":
        return EXAMPLES
    if uri.startswith("examples/"):
        return EXAMPLES / uri.removeprefix("examples/").removesuffix(".md")
    return (DOCS / uri).parent


def _outside(page: Path) -> list[Path]:
    """Files outside docs/ that a page links to and that are not pages themselves."""
    text = _FENCE.sub("", page.read_text())
    found = [(page.parent / match[2]).resolve() for match in [*_LINK.finditer(text), *_IMAGE.finditer(text)]]
    return [path for path in found if path.is_file() and site_path(path).startswith("files/")]


def _examples() -> list[Path]:
    return sorted(path for path in EXAMPLES.iterdir() if path.is_dir() and not path.name.startswith("_"))


def _anchor(name: str) -> str:
    return re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-")


def _example(folder: Path) -> str:
    """An example as a page: its README, then its files."""
    readme = folder / "README.md"
    text = readme.read_text() if readme.exists() else f"# {folder.name}\n"
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in {".yaml", ".py", ".sh", ".csv"} and path.stat().st_size < 20_000:
            language = {".yaml": "yaml", ".py": "python", ".sh": "sh"}.get(path.suffix, "text")
            text += f"\n## {path.relative_to(folder)}\n\n```{language}\n{path.read_text().rstrip()}\n```\n"
    return text


def _examples_index() -> str:
    """The list of examples, and the files that stand alone."""
    rows = []
    for folder in _examples():
        text = _example(folder)
        lines = [line for line in text.splitlines() if line and not line.startswith(("#", "`"))]
        first = re.split(r"(?<=[.:]) ", lines[0])[0] if (folder / "README.md").exists() else ""
        first = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", first)
        rows.append(f"| [{folder.name}]({folder.name}.md) | {first} |")
    text = "\n".join(["# Examples", "", "| example | contents |", "|---|---|", *rows, ""])
    for path in sorted(EXAMPLES.glob("*.yaml")):
        text += f"\n## {path.name}\n\n```yaml\n{path.read_text().rstrip()}\n```\n"
    return text
