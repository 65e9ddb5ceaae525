"""What becomes of rows (contract-data 1.4; cases 1 to 21)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.tasks.errors import DatasetError, RowError, RowOptionsError
from gym_compose.tasks.expansion import Expander, ExpansionOptions
from gym_compose.tasks.prompt import Prompt
from gym_compose.tasks.rows import InputRow, read_rows, taskset_of

P = {"input": "x"}
GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "golden" / "peer_run"


def flat(agent: str | None = None, **extra: Any) -> dict[str, Any]:
    return {"responses_create_params": dict(P), **({} if agent is None else {"agent_ref": {"name": agent}}), **extra}


def mat(taskset: str, task: str, **extra: Any) -> dict[str, Any]:
    return {"task_id": {"taskset": taskset, "task_id": task}, "task_input": {"q": 1}, **extra}


def route(row: Mapping[str, Any]) -> str | None:
    taskset = taskset_of(row)
    if taskset is None:
        return None
    if taskset != "ts":
        raise ValueError(f"taskset {taskset!r} has no route")
    return "env"


def expand(rows: list[Any], options: ExpansionOptions | None = None, *, router: Any = route) -> list[dict[str, Any]]:
    return expander(rows, options, router=router)[0]


def expander(rows: list[Any], options: ExpansionOptions | None = None, *, router: Any = route) -> tuple[list[dict[str, Any]], list[str]]:
    texts = [row if isinstance(row, bytes) else orjson.dumps(row) + b"\n" for row in rows]
    made = Expander(options or ExpansionOptions(), router, Path("f.jsonl"))
    expanded = [item.row for item in made.expand(InputRow(i, text, orjson.loads(text)) for i, text in enumerate(texts))]
    return expanded, made.warnings


def keys(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows]


def agents(rows: list[dict[str, Any]]) -> list[str | None]:
    return [row.get("agent_ref", {}).get("name") for row in rows]


def test_case_1_equal_lines_are_one_task_and_go_on_counting_rollouts() -> None:
    assert keys(expand([flat("a"), flat("a")], ExpansionOptions(num_repeats=2))) == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_case_2_spaces_and_a_missing_last_newline_make_another_task() -> None:
    line = orjson.dumps(flat("a"))
    assert keys(expand([line + b"\n", line[:-1] + b" }\n", line])) == [(0, 0), (1, 0), (2, 0)]


def test_case_5_rows_without_an_agent_are_listed() -> None:
    with pytest.raises(RowOptionsError, match="rows 0, 2"):
        expand([flat(), flat("a"), flat(), flat(task_source="s")])


@pytest.mark.parametrize("params", [{}, {"responses_create_params": None}, {"responses_create_params": []}])
def test_case_6_a_flat_row_needs_params(params: dict[str, Any]) -> None:
    with pytest.raises(RowError, match="responses_create_params") as raised:
        expand([flat("a"), {"agent_ref": {"name": "a"}, **params}])
    assert raised.value.where == "f.jsonl, line 2"


def test_case_7_a_map_to_the_same_name_drops_the_other_keys_of_agent_ref() -> None:
    row = {"responses_create_params": P, "agent_ref": {"name": "a", "type": "T"}}
    assert expand([row])[0]["agent_ref"] == {"name": "a", "type": "T"}
    assert expand([row], ExpansionOptions(agent_map={"a": "a"}))[0]["agent_ref"] == {"name": "a"}


@pytest.mark.parametrize(
    ("row", "mapping", "agent"),
    [
        (flat("a", task_source="s"), {"s": "b", "a": "c"}, "c"),
        (flat("a", task_source="s"), {"s": "b"}, "b"),
        (flat(task_source="s"), {"s": "b", "_default": "z"}, "b"),
        (flat("a"), {"_default": "z"}, "z"),
        (flat(), {"_default": "z"}, "z"),
        (flat("a"), {"x": "y"}, "a"),
    ],
)
def test_case_8_the_order_of_lookup_in_agent_map(row: dict[str, Any], mapping: dict[str, str], agent: str) -> None:
    assert agents(expand([row], ExpansionOptions(agent_map=mapping))) == [agent]


def test_agent_name_is_the_default_of_agent_map_and_must_not_contradict_it() -> None:
    assert agents(expand([flat(), flat("a")], ExpansionOptions(agent_name="z", agent_map={"a": "b"}))) == ["z", "b"]
    with pytest.raises(RowOptionsError, match=r"'z'.*'y'"):
        expand([flat()], ExpansionOptions(agent_name="z", agent_map={"_default": "y"}))


def test_a_remapped_agent_is_warned_about_once() -> None:
    _, warnings = expander([flat("a"), flat("a", n=1), flat()], ExpansionOptions(agent_name="z"))
    assert len(warnings) == 1
    assert "a -> z" in warnings[0]


def test_case_9_fan_out_goes_by_the_name_before_the_map() -> None:
    rows = expand([flat("a")], ExpansionOptions(agent_map={"a": "m"}, fan_out={"a": ["p", "q"]}))
    assert agents(rows) == ["p", "q"]
    assert keys(rows) == [(0, 0), (0, 1)]


def test_case_10_fan_out_counts_rollouts_over_agents() -> None:
    rows = expand([flat(task_source="s")], ExpansionOptions(fan_out={"s": ["a", "b"]}, num_repeats=2))
    assert list(zip(agents(rows), keys(rows), strict=True)) == [("a", (0, 0)), ("a", (0, 1)), ("b", (0, 2)), ("b", (0, 3))]


def test_case_11_repeats_by_name_need_an_entry_or_a_default() -> None:
    with pytest.raises(RowOptionsError, match="no entry for a"):
        expand([flat("a")], ExpansionOptions(num_repeats={"b": 2}))
    rows, warnings = expander([flat("a")], ExpansionOptions(num_repeats={"b": 2, "_default": 1}))
    assert len(rows) == 1
    assert "b" in warnings[0]


def test_repeats_go_by_the_target_and_then_by_the_name_in_the_data() -> None:
    options = ExpansionOptions(agent_map={"s": "b"}, num_repeats={"s": 2, "b": 3})
    assert len(expand([flat(task_source="s")], options)) == 3
    assert len(expand([flat(task_source="s")], ExpansionOptions(agent_map={"s": "b"}, num_repeats={"s": 2}))) == 2


def test_case_12_the_key_of_a_materialized_row_is_its_taskset() -> None:
    assert len(expand([mat("ts", "1")], ExpansionOptions(num_repeats={"ts": 2}))) == 2
    with pytest.raises(RowOptionsError, match="no entry for ts"):
        expand([mat("ts", "1")], ExpansionOptions(num_repeats={"env": 2}))


def test_case_13_a_taskset_without_route_names_its_line() -> None:
    with pytest.raises(RowError, match="'tz'") as raised:
        expand([mat("ts", "1"), mat("tz", "1")])
    assert raised.value.line == 2


def test_case_14_an_empty_taskset_is_a_flat_row() -> None:
    with pytest.raises(RowOptionsError, match="no agent for rows 0"):
        expand([mat("", "1")])


def test_case_15_a_null_task_input_is_accepted_here() -> None:
    assert expand([{"task_id": {"taskset": "ts", "task_id": "1"}, "task_input": None}])[0]["_ng_environment_server"] == "env"


@pytest.mark.parametrize(
    "options",
    [
        ExpansionOptions(responses_create_params={"temperature": 1}),
        ExpansionOptions(num_repeats_add_seed=True),
        ExpansionOptions(skills_ref={"hash": "x"}),
    ],
)
def test_case_16_what_cannot_be_applied_to_a_materialized_row(options: ExpansionOptions) -> None:
    with pytest.raises(RowError, match="materialized"):
        expand([mat("ts", "1")], options)
    assert len(expand([flat("a")], options)) == 1


def test_case_17_a_chosen_server_makes_agents_moot() -> None:
    rows = expand([mat("ts", "1")], ExpansionOptions(agent_name="z", fan_out={"ts": ["p", "q"]}))
    assert agents(rows) == [None]


def test_case_18_a_mode_that_chooses_needs_no_agent() -> None:
    rows = expand([flat("a"), flat(task_source="s"), flat(), mat("ts", "1")], router=lambda row: route(row) or "env2")
    assert [row["_ng_environment_server"] for row in rows] == ["env2", "env2", "env2", "env"]
    assert agents(rows) == ["a", None, None, None]


def test_case_19_overrides_merge_at_the_top_only() -> None:
    row = {"responses_create_params": {"reasoning": {"effort": "low", "summary": "auto"}, "input": "x"}, "agent_ref": {"name": "a"}}
    (made,) = expand([row], ExpansionOptions(responses_create_params={"reasoning": {"effort": "high"}}))
    assert made["responses_create_params"] == {"reasoning": {"effort": "high"}, "input": "x"}


def test_case_20_seeds_go_into_the_json_text() -> None:
    row = {"responses_create_params": {"metadata": {"extra_body": '{"a":1}', "k": "v"}}, "agent_ref": {"name": "a"}}
    rows = expand([row], ExpansionOptions(num_repeats=2, num_repeats_add_seed=True))
    assert [made["responses_create_params"]["metadata"] for made in rows] == [
        {"extra_body": '{"a": 1, "seed": 0}', "k": "v"},
        {"extra_body": '{"a": 1, "seed": 1}', "k": "v"},
    ]


@pytest.mark.parametrize("extra", ["[1]", "{", 3])
def test_an_extra_body_that_is_no_json_object(extra: Any) -> None:
    row = {"responses_create_params": {"metadata": {"extra_body": extra}}, "agent_ref": {"name": "a"}}
    with pytest.raises(RowError, match="extra_body"):
        expand([row], ExpansionOptions(num_repeats_add_seed=True))


def test_case_21_a_given_task_index_and_a_counted_one_may_meet() -> None:
    assert keys(expand([flat("a", _ng_task_index=0), flat("a")])) == [(0, 0), (0, 1)]


@pytest.mark.parametrize("index", ["0", 1.5, None, True, {}])
def test_a_task_index_is_a_whole_number(index: Any) -> None:
    with pytest.raises(RowError, match="_ng_task_index"):
        expand([flat("a", _ng_task_index=index)])


@pytest.mark.parametrize(
    "options",
    [
        ExpansionOptions(num_repeats=0),
        ExpansionOptions(num_repeats={"a": 0}),
        ExpansionOptions(num_repeats={}),
        ExpansionOptions(fan_out={"a": []}),
        ExpansionOptions(fan_out={"a": ["p", "p"]}),
    ],
)
def test_options_that_make_no_sense(options: ExpansionOptions) -> None:
    with pytest.raises(RowOptionsError):
        expand([flat("a")], options)


def test_a_prompt_is_filled_before_anything_else_and_keeps_other_params() -> None:
    row = {"q": "why", "responses_create_params": {"tools": []}, "agent_ref": {"name": "a"}}
    (made,) = expand([row], ExpansionOptions(prompt=Prompt("Say {q} {{ok}}", "Be brief")))
    assert made["responses_create_params"] == {
        "tools": [],
        "input": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Say why {ok}"}],
    }


def test_a_prompt_and_rows_with_input_exclude_each_other_and_all_such_rows_are_listed() -> None:
    with pytest.raises(RowOptionsError, match="rows 0, 1"):
        expand([flat("a"), flat("b"), {"agent_ref": {"name": "a"}, "q": 1}], ExpansionOptions(prompt=Prompt("{q}")))


@pytest.mark.parametrize(
    ("template", "text"), [("{nope}", "'nope'"), ("{", "cannot be filled"), ("{q.x}", "cannot be filled"), ("{}", "cannot be")]
)
def test_a_prompt_that_cannot_be_filled(template: str, text: str) -> None:
    with pytest.raises(DatasetError, match=text):
        expand([{"q": "x", "agent_ref": {"name": "a"}}], ExpansionOptions(prompt=Prompt(template, path="p.yaml")))


def test_skills_are_stamped_on_flat_rows() -> None:
    rows = expand([flat("a")], ExpansionOptions(skills_ref={"hash": "h"}))
    assert rows[0]["skills_ref"] == {"hash": "h"}


def test_expanding_a_materialized_inputs_file_again_keeps_task_indices() -> None:
    once = expand([flat("a"), flat("b"), flat("a", n=1)], ExpansionOptions(num_repeats=2))
    assert keys(expand(list(once))) == keys(once)


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(1, 4))
def test_rollout_keys_never_repeat_and_each_line_gets_its_repeats(numbers: list[int], repeats: int) -> None:
    rows = expand([flat("a", n=n) for n in numbers], ExpansionOptions(num_repeats=repeats))
    assert len(rows) == len(numbers) * repeats
    assert len(set(keys(rows))) == len(rows)
    first_seen = list(dict.fromkeys(numbers))
    assert [row["_ng_task_index"] for row in rows] == [first_seen.index(row["n"]) for row in rows]


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="the golden data is not here")
@pytest.mark.parametrize("case", ["example_single_tool_call", "example_single_tool_call_single_agent_turn"])
def test_the_peers_materialized_file_byte_for_byte(case: str) -> None:
    expected = (GOLDEN / case / "rollouts_materialized_inputs.jsonl").read_bytes()
    agent = orjson.loads(expected.splitlines()[0])["agent_ref"]["name"]
    made = Expander(ExpansionOptions(agent_name=agent, num_repeats=2), lambda _row: None, Path("rows.jsonl"))
    rows = list(made.expand(read_rows(GOLDEN / "rows.jsonl")))
    assert b"".join(orjson.dumps(item.row) + b"\n" for item in rows) == expected
