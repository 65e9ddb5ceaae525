"""``gym dataset render``: rows with their prompt filled in, one by one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gym_compose.tasks.errors import DatasetError, RowError
from gym_compose.tasks.prompt import Prompt
from gym_compose.tasks.render import render


def test_each_row_gets_its_messages_and_the_template_that_made_them(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"q": "why"}\n{"q": "how", "responses_create_params": {"temperature": 1}}\n')
    assert render(tmp_path / "in.jsonl", Prompt("Say {q}", "Be brief", "p.yaml"), tmp_path / "new/out.jsonl") == 2
    first, second = (json.loads(line) for line in (tmp_path / "new/out.jsonl").read_text().splitlines())
    assert first == {
        "q": "why",
        "responses_create_params": {"input": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Say why"}]},
        "prompt_config_used": "p.yaml",
    }
    assert second["responses_create_params"]["temperature"] == 1


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"q": 1, "responses_create_params": {"input": "x"}}, "has a responses_create_params.input already"),
        ({"p": 1}, "names the field 'q'"),
        ({"q": 1, "deep": json.loads("[" * 300 + "]" * 300)}, "nested deeper than the 254 levels"),
    ],
)
def test_a_row_that_does_not_fit_is_named_and_nothing_is_left(tmp_path: Path, row: dict[str, object], told: str) -> None:
    (tmp_path / "in.jsonl").write_text(f'{{"q": 1}}\n{json.dumps(row)}\n')
    with pytest.raises(RowError, match=f"line 2: .*{told}"):
        render(tmp_path / "in.jsonl", Prompt("Say {q}"), tmp_path / "out.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_a_place_where_nothing_can_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"q": 1}\n')
    with pytest.raises(DatasetError, match="the rows cannot be written"):
        render(tmp_path / "in.jsonl", Prompt("Say {q}"), tmp_path / "in.jsonl" / "out.jsonl")
