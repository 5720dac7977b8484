"""Texts that are much alike take little memory, and come back as they were."""

from __future__ import annotations

import hashlib

from pykueue.kube.compression import Compressor


def manifest(number: int, kind: str) -> bytes:
    """A text of which a few words are its own."""
    words = [hashlib.sha256(f"{kind} {word}".encode()).hexdigest() for word in range(20)]
    return f"{number} {hashlib.sha256(str(number).encode()).hexdigest()} {' '.join(words)}".encode()


def test_texts_that_are_alike_take_a_small_part_of_their_size() -> None:
    compressor = Compressor()
    kinds = ["small", "medium", "large"]
    texts = [b"", *(manifest(number, kinds[number % 3]) for number in range(1000)), b"x" * 100_000]
    compressed = [compressor.compress(text) for text in texts]
    assert [each.text for each in compressed] == texts
    assert sum(len(each.data) for each in compressed[500:-1]) < 0.15 * sum(map(len, texts[500:-1]))


def test_dictionaries_are_shared_also_where_no_text_is_like_another() -> None:
    compressor = Compressor()
    texts = [manifest(number, str(number)) for number in range(1000)]
    compressed = [compressor.compress(text) for text in texts]
    assert [each.text for each in compressed] == texts
    dictionaries = {id(each.dictionary): len(each.dictionary) for each in compressed}
    assert sum(dictionaries.values()) < 0.05 * sum(map(len, texts))
