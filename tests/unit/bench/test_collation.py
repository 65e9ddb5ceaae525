"""The collation bench measures what it says: every row comes out, once, with its id."""

from __future__ import annotations

import json
from pathlib import Path

from bench import collation


def test_it_collates_the_rows_that_it_makes(tmp_path: Path) -> None:
    collation.write_rows(tmp_path / "rows.jsonl", 50)
    measured = collation.measure(tmp_path, 50)
    rows = [json.loads(line) for line in (tmp_path / "collated/train.jsonl").read_text().splitlines()]
    assert len({row["task_id"]["task_id"] for row in rows}) == 50
    assert measured["megabytes"] > 0
