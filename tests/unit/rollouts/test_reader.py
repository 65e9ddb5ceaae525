"""Lines of a run's files: what is whole is read, what is not is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from gym_compose.rollouts.errors import RolloutFileError
from gym_compose.rollouts.reader import read_at, read_lines


def test_records_with_their_places(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_bytes(b'{"a":1}\n\n{"a":2}\n')
    found = list(read_lines(file))
    assert [(line.number, line.record["a"]) for line in found] == [(1, 1), (3, 2)]
    assert read_at(file, found[1].offset) == {"a": 2}


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_bytes(b'{"a":1}\n{"a":')
    assert [line.record for line in read_lines(file)] == [{"a": 1}]


@pytest.mark.parametrize("text", [b"{", b"[1]", b"nonsense"])
def test_a_bad_line_is_named(text: bytes, tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_bytes(b'{"a":1}\n' + text + b'\n{"a":2}\n')
    with pytest.raises(RolloutFileError, match=r"r\.jsonl:2"):
        list(read_lines(file))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert list(read_lines(tmp_path / "no.jsonl", missing=True)) == []
    with pytest.raises(RolloutFileError, match="--rollouts"):
        list(read_lines(tmp_path / "no.jsonl", flag="--rollouts"))


def test_a_record_without_indices_is_named(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_bytes(b'{"_ng_task_index":0}\n')
    with pytest.raises(RolloutFileError, match="_ng_rollout_index"):
        next(iter(read_lines(file))).key  # noqa: B018  the property raises
