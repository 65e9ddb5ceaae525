"""Reading input files (contract-data 1.3; cases 3, 4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.tasks.errors import RowError
from gym_compose.tasks.rows import agent_of, is_materialized, read_rows, source_of, taskset_of


def lines(tmp_path: Path, content: bytes, limit: int | None = None) -> list[dict[str, Any]]:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    return [row.row for row in read_rows(path, limit)]


@pytest.mark.parametrize(
    ("content", "line", "text"),
    [
        (b'{"a":1}\n\n{"a":2}\n', 2, "blank line"),
        (b'{"a":1}\n  \t\n', 2, "blank line"),
        (b'{"a":1}\n{"a":\n', 2, "not valid JSON"),
        (b'{"a":1}\n{"a":1}{"b":2}\n', 2, "not valid JSON"),
        (b"[1]\n", 1, "a list"),
        (b'"x"\n', 1, "a string"),
        (b"null\n", 1, "null"),
        (b"true\n", 1, "a boolean"),
        (b"1.5\n", 1, "a number"),
        (b'\xef\xbb\xbf{"a":1}\n', 1, "not valid JSON"),
        (b'{"a":"\xff"}\n', 1, "not valid JSON"),
    ],
)
def test_a_line_that_is_no_row_is_named(tmp_path: Path, content: bytes, line: int, text: str) -> None:
    with pytest.raises(RowError) as raised:
        lines(tmp_path, content)
    assert raised.value.line == line
    assert raised.value.where == f"{tmp_path / 'rows.jsonl'}, line {line}"
    assert text in raised.value.message


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RowError, match="No such file"):
        list(read_rows(tmp_path / "none"))


@pytest.mark.parametrize(("limit", "count"), [(None, 3), (0, 3), (-1, 0), (1, 1), (3, 3), (9, 3)])
def test_the_limit(tmp_path: Path, limit: int | None, count: int) -> None:
    assert len(lines(tmp_path, b"{}\n{}\n{}\n", limit)) == count


def test_lines_beyond_the_limit_are_not_looked_at(tmp_path: Path) -> None:
    assert lines(tmp_path, b"{}\nnonsense\n", 1) == [{}]


def test_an_empty_file_has_no_rows_and_the_last_newline_may_be_missing(tmp_path: Path) -> None:
    assert lines(tmp_path, b"") == []
    assert lines(tmp_path, b'{}\n{"a":1}') == [{}, {"a": 1}]


@given(
    st.lists(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), max_size=3), max_size=6),
    st.sampled_from([b"\n", b"\r\n"]),
)
def test_what_is_written_as_jsonl_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], newline: bytes
) -> None:
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_bytes(b"".join(orjson.dumps(row) + newline for row in rows))
    read = list(read_rows(path))
    assert [row.row for row in read] == rows
    assert [row.line for row in read] == list(range(1, len(rows) + 1))
    assert all(row.text.endswith(b"}\n") for row in read)


@pytest.mark.parametrize(
    ("row", "materialized", "taskset"),
    [
        ({"task_id": {"taskset": "t", "task_id": "1"}, "task_input": {}}, True, "t"),
        ({"task_id": {"taskset": "t"}, "task_input": None}, True, "t"),
        ({"task_id": {"taskset": "", "task_id": "1"}, "task_input": {}}, True, None),
        ({"task_id": {"taskset": 3}, "task_input": {}}, True, None),
        ({"task_id": {"taskset": "t"}}, False, None),
        ({"task_id": "t", "task_input": {}}, False, None),
        ({}, False, None),
    ],
)
def test_flat_or_materialized(row: dict[str, Any], materialized: bool, taskset: str | None) -> None:
    assert is_materialized(row) is materialized
    assert taskset_of(row) == taskset


@pytest.mark.parametrize(("value", "name"), [({"name": "a", "type": "t"}, "a"), ({}, None), (None, None), ("a", None), ({"name": 1}, None)])
def test_names_in_rows(value: Any, name: str | None) -> None:
    assert agent_of({"agent_ref": value}) == name
    assert source_of({"task_source": value}) == ("a" if value == "a" else None)
