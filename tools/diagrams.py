"""Draw the Mermaid diagrams of docs/ as pictures: `python -m tools.diagrams --write MERMAID.JS`.

GitHub draws Mermaid blocks itself; the site shows pictures in docs/images, which need no script and no
network. A picture is named after the digest of its block, so that a changed block without a new picture is
found: without `--write` missing and unused pictures are listed. Drawing needs Chromium and mermaid.min.js of
the npm package mermaid.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
IMAGES = DOCS / "images"
BLOCK = re.compile(r"^```mermaid\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)

_PAGE = """<!doctype html><meta charset="utf-8"><body><script src="{script}"></script>
<pre id="text">{text}</pre>
<script>
mermaid.initialize({{startOnLoad: false, theme: "neutral", fontFamily: "sans-serif", htmlLabels: false}});
mermaid.render("diagram", document.getElementById("text").textContent).then(({{svg}}) => {{
  const found = new DOMParser().parseFromString(svg, "text/html").querySelector("svg");
  document.body.replaceChildren();
  document.body.dataset.svg = new XMLSerializer().serializeToString(found);
}});
</script>"""


def picture(block: str) -> str:
    """The name of the picture of a block."""
    return f"diagram-{hashlib.sha256(block.encode()).hexdigest()[:12]}.svg"


def blocks() -> dict[str, str]:
    """All Mermaid blocks by the names of their pictures."""
    return {picture(block): block for page in DOCS.rglob("*.md") for block in BLOCK.findall(page.read_text())}


def drawn(block: str, script: Path) -> str:
    """The picture of a block. Raises RuntimeError where Mermaid does not accept it."""
    browser = shutil.which(os.environ.get("CHROMIUM", "chromium"))
    if browser is None:
        raise RuntimeError("Chromium is not installed: put chromium on PATH, or name it in CHROMIUM")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(_PAGE.format(script=script.resolve().as_uri(), text=html.escape(block)))
        done = subprocess.run(
            [
                browser,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--virtual-time-budget=20000",
                "--dump-dom",
                page.as_uri(),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
    found = re.search(r'<body data-svg="([^"]+)"', done.stdout)
    if found is None:
        raise RuntimeError(f"Mermaid did not draw:\n{block}")
    svg = html.unescape(found[1])
    size = re.search(r'viewBox="[-\d.]+ [-\d.]+ ([\d.]+) ([\d.]+)"', svg)
    assert size is not None
    # On white, so that it is legible in the dark theme too.
    opening = f'<svg id="diagram" width="{size[1]}" height="{size[2]}" style="background: #fff"'
    return (
        re.sub(r'^<svg id="diagram" width="100%"([^>]*) style="[^"]*"', rf"{opening}\1", svg, count=1) + "\n"
    )


def main() -> None:
    """List what is missing or unused, or draw what is missing."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--write", type=Path, metavar="MERMAID.JS")
    given = parser.parse_args()
    wanted, present = blocks(), {path.name for path in IMAGES.glob("diagram-*.svg")}
    missing, unused = sorted(wanted.keys() - present), sorted(present - wanted.keys())
    if given.write is None:
        for name in (*missing, *unused):
            print(
                f"docs/images/{name}: {'missing' if name in missing else 'not used'}; see tools/diagrams.py"
            )
        sys.exit(bool(missing or unused))
    for name in missing:
        (IMAGES / name).write_text(drawn(wanted[name], given.write))
    for name in unused:
        (IMAGES / name).unlink()


if __name__ == "__main__":
    main()
