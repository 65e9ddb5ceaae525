"""What is wrong with rows, routes and agents is told by file and line, and found before any file is touched (contract-data 1.3 to 1.6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gym_compose.driver.errors import AgentWithoutEnvironmentServerError, AmbiguousEnvironmentServerError, RoutingError
from gym_compose.tasks.errors import RowError, RowOptionsError
from gym_compose.wire.errors import GymComposeError

P = {"responses_create_params": {"input": "x"}}
A = {**P, "agent_ref": {"name": "a"}}
MAT = {"task_id": {"taskset": "ts", "task_id": "1"}, "task_input": {}}


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


async def refused(stubs: Any, rows: Any, error: type[GymComposeError], **changes: Any) -> GymComposeError:
    """The error of a run over an earlier one's output, of which nothing has changed then."""
    await stubs.run([stubs.flat("a")], limit=None)
    before = contents(stubs.output.parent)
    with pytest.raises(error) as raised:
        await stubs.run(rows, overwrite=True, **changes)
    assert contents(stubs.output.parent) == before
    return raised.value


def said(error: GymComposeError) -> str:
    return "\n".join((str(error.where), error.message, error.hint or "", *error.details))


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (b"", "blank line"),
        (b"  ", "blank line"),
        (b'{"a": ', "not valid JSON"),
        (b"[1]", "this is a list"),
        (
            b'{"responses_create_params": {}, "agent_ref": {"name": "a"}, "x": %b%b}' % (b"[" * 300, b"]" * 300),
            "nested deeper than the 254",
        ),
        (b'{"responses_create_params": {}, "agent_ref": {"name": "a"}, "_ng_task_index": 18446744073709551615}', "is a whole number"),
        (b"7", "this is a number"),
        (b"null", "this is null"),
        (b'"text"', "this is a string"),
        (b'{"agent_ref": {"name": "a"}}', "responses_create_params is missing"),
        (b'{"agent_ref": {"name": "a"}, "responses_create_params": 1}', "responses_create_params is not an object"),
        (b'{"task_id": {"taskset": "tx", "task_id": "1"}, "task_input": {}}', "taskset 'tx' has no route"),
    ],
)
async def test_a_bad_line_is_named_by_file_and_line(stubs: Any, tmp_path: Path, second: bytes, words: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b'{"agent_ref": {"name": "a"}, "responses_create_params": {}}\n' + second + b"\n")
    error = await refused(stubs, path, RowError)
    assert words in error.message
    assert error.where == f"{path}, line 2"


@pytest.mark.parametrize(
    ("row", "changes", "error", "words"),
    [
        ({**P, "agent_ref": {"name": "aa"}}, {}, RoutingError, "Did you mean 'a'"),
        ({**P, "agent_ref": {"name": "rs"}}, {}, RoutingError, "'rs' is in the running config and is not an agent"),
        ({**P, "agent_ref": {"name": "lonely"}}, {}, AgentWithoutEnvironmentServerError, "no environment server fronts agent 'lonely'"),
        ({**P, "agent_ref": {"name": "twice"}}, {}, AmbiguousEnvironmentServerError, "twice_1, twice_2"),
        ({**A, "_ng_environment_server": "b_env"}, {}, RoutingError, "It fronts b."),
        ({**P, "agent_ref": {"name": "c"}, "_ng_environment_server": "pair"}, {}, RoutingError, "It fronts u, v."),
        ({**A, "_ng_environment_server": "a_envv"}, {}, RoutingError, "Did you mean 'a_env'"),
        ({**A, "_ng_environment_server": "rs"}, {}, RoutingError, "is not an environment server"),
        ({**MAT, "task_source": "rs2"}, {}, RoutingError, "is not the resources server of environment server 'native'"),
        ({**P, "task_source": "rss"}, {}, RoutingError, "Did you mean 'rs'"),
        ({**P, "task_source": "model"}, {}, RoutingError, "neither a resources server nor an agent"),
        ({**P, "task_source": "shared"}, {}, RoutingError, "task_source 'shared'"),
        ({**P, "task_source": "picky", "agent_ref": {"name": "a"}}, {}, RoutingError, "does not accept agent 'a' of type 'simple_agent'"),
        (P, {}, RowOptionsError, "no agent for rows 0"),
        ({"task_id": {"taskset": "", "task_id": "1"}, "task_input": {}}, {}, RowOptionsError, "no agent for rows 0"),
        (A, {"environment_routing_mode": "taskset"}, RowError, "takes materialized rows only"),
        (A, {"environment_routing_mode": "legacy"}, RowOptionsError, "environment_server_name"),
        (MAT, {"environment_server_routes": {"ts": "nativ"}}, RowError, "taskset 'ts' is routed to 'nativ', which is not in the running"),
        (MAT, {"environment_server_routes": {"ts": "rs"}}, RowError, "taskset 'ts' is routed to 'rs', which is not an environment server"),
        (MAT, {"responses_create_params": {"temperature": 1}}, RowError, "cannot be applied to a materialized row"),
        (MAT, {"num_repeats_add_seed": True}, RowError, "cannot be applied to a materialized row"),
        (MAT, {"skills_ref": {"path": "s"}}, RowError, "cannot be applied to a materialized row"),
        (MAT, {"num_repeats": {"native": 2}}, RowOptionsError, "num_repeats has no entry for ts"),
        ({**MAT, "_ng_attempt_index": True}, {}, RowError, "_ng_attempt_index"),
        ({**MAT, "_ng_attempt_index": -1}, {}, RowError, "_ng_attempt_index"),
        ({**MAT, "_ng_rollout_id": "0 1"}, {}, RowError, "_ng_rollout_id"),
        (A, {"num_repeats": {"b": 2}}, RowOptionsError, "num_repeats has no entry for a"),
        (A, {"agent_name": "a", "agent_map": {"_default": "b"}}, RowOptionsError, "Give one of them"),
        (A, {"fan_out": {"a": []}}, RowOptionsError, "fan_out.a"),
    ],
)
async def test_a_row_that_has_nowhere_to_go_is_refused_with_what_is_there(
    stubs: Any, blocks: Any, row: dict[str, Any], changes: dict[str, Any], error: type[GymComposeError], words: str
) -> None:
    to = {"host": "127.0.0.1", "port": stubs.servers["a_env"].port}
    stubs.config |= {
        "lonely": blocks.agent(),
        "twice": blocks.agent(),
        "twice_1": blocks.environment(agent_server=blocks.reference("twice"), **to),
        "twice_2": blocks.environment(agent_server=blocks.reference("twice"), **to),
        **{name: blocks.agent() for name in ("c", "u", "v")},
        "pair": blocks.environment("nemo_user_sim", user_agent=blocks.reference("u"), assistant_agent=blocks.reference("v"), **to),
        "rs2": blocks.resources(),
        "shared": blocks.resources(),
        "of_shared_1": blocks.agent("shared"),
        "of_shared_2": blocks.agent("shared"),
        "picky": blocks.resources(allowed_agents=["other_agent"]),
        "model": {"responses_api_models": {"openai_model": {"entrypoint": "app.py"}}},
    }
    assert words in said(await refused(stubs, [row], error, **changes))


async def test_all_that_is_wrong_with_the_agents_of_the_rows_is_told_at_once(stubs: Any) -> None:
    rows = [stubs.flat("a"), stubs.flat("aa"), stubs.flat("bb"), stubs.flat("aa", n=1)]
    error = await refused(stubs, rows, RoutingError)
    assert "(and 1 more kinds of rows)" in error.message
    assert any("2 row(s), first from line 2" in detail and "'aa'" in detail for detail in error.details)
    assert any("'bb'" in detail for detail in error.details)
