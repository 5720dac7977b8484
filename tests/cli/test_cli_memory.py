"""Where the memory of objects comes from: huge pages, with compiled modules on Linux."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pykueue.extras import engine_is_compiled

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")

#: Prints whether huge pages were asked for, and how many KiB of them hold 20 MB of objects, twice.
PROGRAM = """
import re
from pathlib import Path
from pykueue.cli.memory import use_huge_pages

def huge():
    return sum(map(int, re.findall(r"AnonHugePages: +(\\d+)", Path("/proc/self/smaps").read_text())))

asked = use_huge_pages()
for _ in range(2):
    objects = [[i] for i in range(200_000)]
    print(asked, huge(), sum(map(sum, objects)))
    del objects
"""


def run() -> list[list[str]]:
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    return [line.split() for line in result.stdout.splitlines()]


@pytest.mark.skipif(sys.platform != "linux", reason="huge pages are asked of Linux")
def test_objects_are_in_huge_pages_where_modules_are_compiled() -> None:
    if engine_is_compiled() and (not SETTING.exists() or "[never]" in SETTING.read_text()):
        pytest.skip("this machine has no transparent huge pages")
    for asked, huge, total in run():
        assert asked == str(engine_is_compiled())
        assert total == str(sum(range(200_000)))
        if engine_is_compiled():
            assert int(huge) > 0
