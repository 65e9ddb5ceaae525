"""What the side-by-side figures are counted from."""

from __future__ import annotations

from typing import Any

import pytest

from bench.figure import used_memory
from bench.peer_runtime import disk_bytes


@pytest.mark.parametrize("name", ["total_inactive_file", "inactive_file"])
def test_memory_is_counted_without_what_can_be_dropped(name: str) -> None:
    assert used_memory({"memory_stats": {"usage": 100, "stats": {name: 30}}}) == 70
    assert used_memory({"memory_stats": {"usage": 100}}) == 100


def image(name: str, size: int, *layers: str) -> dict[str, Any]:
    return {"Id": name, "Size": size, "RootFS": {"Layers": list(layers)}}


def test_what_images_share_counts_once() -> None:
    base, packages = image("base", 100, "a"), image("packages", 150, "a", "b")
    first, second = image("first", 400, "a", "b", "c"), image("second", 170, "a", "b", "d")
    other = image("other", 130, "a", "e")
    known = [base, packages, first, second, other]
    assert disk_bytes([first, first], known) == 400
    assert disk_bytes([second, first], known) == 400 + 20
    assert disk_bytes([second, first, other], known) == 400 + 20 + 30
    assert disk_bytes([first, image("apart", 7, "z")], known) == 407
