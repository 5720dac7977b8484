"""Where the memory of Python's objects comes from."""

from __future__ import annotations


def use_huge_pages() -> bool:
    """Ask Linux for huge pages for all objects that are made from now on; whether that can be asked for.

    A large process spends a tenth of its time on finding the pages of its objects. Only an installation with
    compiled modules can ask (docs/decisions/0024-huge-pages.md).
    """
    try:
        from pykueue.cli import _arenas
    except ImportError:
        return False
    _arenas.use_huge_pages()
    return True
