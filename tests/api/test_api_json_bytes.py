"""JSON that is kept takes the memory of its text."""

import tracemalloc

import orjson

from pykueue.api.json_bytes import encode_kept


def test_kept_json_takes_the_memory_of_its_text() -> None:
    value = {"image": "registry.example.com/team/trainer", "args": ["x" * 900]}
    assert encode_kept(value) == orjson.dumps(value)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    kept = [encode_kept(value) for _ in range(100)]
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (after - before) / len(kept) < 1.1 * len(kept[0])
