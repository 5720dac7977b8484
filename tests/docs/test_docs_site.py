"""The documentation as a site: it builds without a warning, and its pages need no other host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: What a browser would load by itself: not links.
_LOADED = re.compile(
    r"<(?:script|img|iframe)\b[^>]*\bsrc=[\"'](https?:[^\"']+)|<link\b[^>]*rel=[\"']?stylesheet[^>]*href=[\"'](https?:[^\"']+)"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        relative = page.relative_to(ROOT / "docs")
        folder = relative.parent if page.name == "README.md" else relative.with_suffix("")
        assert (site / folder / "index.html").exists(), relative


def test_every_example_has_a_page_with_its_manifests(site: Path) -> None:
    for folder in (ROOT / "examples").iterdir():
        if folder.is_dir():
            text = (site / "examples" / folder.name / "index.html").read_text()
            assert "apiVersion" in text, folder.name


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not _LOADED.findall(page.read_text()), page.relative_to(site)


def test_every_mermaid_diagram_has_its_picture_and_no_script_draws_it(site: Path) -> None:
    """When this fails: see tools/diagrams.py."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.diagrams"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    page = (site / "use" / "multikueue" / "index.html").read_text()
    (picture,) = re.findall(r'<img[^>]*src="\.\./\.\./(images/diagram-[^"]+)"', page)
    assert (site / picture).exists()
    assert "sequenceDiagram" not in page
