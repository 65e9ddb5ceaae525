"""``aggregate_metrics`` against the peer's on the same records: every value to 1e-9, every key, in the same order."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gym_compose.wire.aggregation import aggregate_metrics

GOLDEN = Path(__file__).parents[3] / "shared" / "golden" / "aggregate.jsonl.gz"


def _cases() -> list[dict[str, Any]]:
    if not GOLDEN.exists():
        return []
    with gzip.open(GOLDEN, "rt") as lines:
        return [json.loads(line) for line in lines]


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        if list(ours) != list(theirs):
            yield f"{path}: keys {list(ours)} != {list(theirs)}"
        for key in theirs.keys() & ours.keys():
            yield from differences(ours[key], theirs[key], f"{path}/{key}")
    elif isinstance(theirs, list) and isinstance(ours, list):
        if len(ours) != len(theirs):
            yield f"{path}: {len(ours)} != {len(theirs)} entries"
        for index, (left, right) in enumerate(zip(ours, theirs, strict=False)):
            yield from differences(left, right, f"{path}[{index}]")
    elif isinstance(theirs, float) or isinstance(ours, float):
        if not math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-9):
            yield f"{path}: {ours!r} != {theirs!r}"
    elif ours != theirs:
        yield f"{path}: {ours!r} != {theirs!r}"


@pytest.mark.skipif(not GOLDEN.exists(), reason="the shared golden data is not here")
@pytest.mark.parametrize("case", _cases(), ids=lambda case: case["name"])
def test_the_peers_metrics_come_out_of_its_records(case: dict[str, Any]) -> None:
    ours = json.loads(json.dumps(aggregate_metrics(case["records"])))
    assert list(differences(ours, case["metrics"])) == []


@pytest.mark.skipif(not GOLDEN.exists(), reason="the shared golden data is not here")
def test_the_order_of_records_does_not_matter() -> None:
    case = next(case for case in _cases() if case["name"].startswith("everything"))
    ours = json.loads(json.dumps(aggregate_metrics(list(reversed(case["records"])))))
    assert [line for line in differences(ours, case["metrics"]) if "perf_summary" not in line] == []
