"""Where the memory of objects comes from: huge pages, with compiled modules on Linux."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pykueue.extras import engine_is_compiled

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")

#: Prints whether huge pages were asked for, and how many parts of the memory of 80 MB of objects may be such.
PROGRAM = """
from pathlib import Path
from pykueue.cli.memory import use_huge_pages

asked = use_huge_pages()
objects = [[i] for i in range(800_000)]
lines = Path("/proc/self/smaps").read_text().splitlines()
marked = sum("hg" in line.split() for line in lines if line.startswith("VmFlags"))
print(asked, marked, sum(map(sum, objects)))
"""

#: Prints by how many MB the process grows while threads, with chunks of frames, come and go beside objects.
THREADS = """
import threading
from pathlib import Path
from pykueue.cli.memory import use_huge_pages

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

def deep(number):
    return number and deep(number - 1)

use_huge_pages()
kept = [[i] for i in range(800_000)]
before = resident()
for _ in range(60):
    objects = [[i] for i in range(30_000)]
    thread = threading.Thread(target=deep, args=(400,))
    thread.start()
    thread.join()
    del objects
print(resident() - before)
"""


def run(program: str) -> list[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.skipif(sys.platform != "linux", reason="huge pages are asked of Linux")
def test_many_objects_are_in_huge_pages_where_modules_are_compiled() -> None:
    if engine_is_compiled() and not SETTING.exists():
        pytest.skip("this machine has no transparent huge pages")
    asked, marked, total = run(PROGRAM)
    assert asked == str(engine_is_compiled())
    assert (int(marked) > 0) == engine_is_compiled()
    assert total == str(sum(range(800_000)))


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_memory_does_not_grow_while_threads_come_and_go() -> None:
    (grown,) = run(THREADS)
    assert float(grown) < 20
