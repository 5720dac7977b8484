"""Where the memory of Python's objects comes from."""

from __future__ import annotations


def use_huge_pages() -> bool:
    """Ask Linux for huge pages once the process has many objects; whether that can be asked for.

    A large process spends up to a tenth of its CPU time on address translation. Only an installation with
    compiled modules can ask (docs/decisions/0024-huge-pages.md).
    """
    try:
        from pykueue.cli import _arenas
    except ImportError:
        return False
    _arenas.use_huge_pages()
    return True
