from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from gym_compose.wire.errors import InvalidInputError

DIRECTORY = "responses_api_models/scripted_model"
USER = {"role": "user", "content": "2 + 2?"}
TOOL = {"type": "function", "name": "add", "strict": True, "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}

Make = Callable[..., httpx.AsyncClient]


@pytest.fixture
def scripted(serve: Any) -> Make:
    return lambda **block: serve(DIRECTORY, "ScriptedModelServer", block)


@pytest.fixture
def answers(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(b"".join(orjson.dumps({"prompt": f"q{i}", "answer": f"a{i}"}, option=orjson.OPT_APPEND_NEWLINE) for i in range(40)))
    return {"jsonl": str(path)}


def _text(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["output"][0]["content"][0]["text"]
    return text


async def test_a_reference_answer_is_a_whole_responses_object(scripted: Make, answers: dict[str, str]) -> None:
    client = scripted(rule="answers", answers=answers, answer_template="<answer>{answer}</answer>", model="m")
    answer = await client.post("/v1/responses", json={"input": "q3", "temperature": 0.5, "metadata": {"k": "v"}, "tools": [TOOL]})
    assert _text(answer) == "<answer>a3</answer>"
    body = answer.json()
    assert body["metadata"] == {"k": "v", "scripted_outcome": "right"}
    assert (body["model"], body["temperature"], body["created_at"], body["status"]) == ("m", 0.5, 0.0, "completed")
    assert body["tools"][0]["name"] == "add"
    assert list(body)[:4] == ["id", "created_at", "error", "incomplete_details"]


async def test_an_unknown_prompt_is_a_422_that_quotes_it(scripted: Make, answers: dict[str, str]) -> None:
    answer = await scripted(rule="answers", answers=answers).post("/v1/responses", json={"input": "what is it?"})
    assert answer.status_code == 422
    assert "what is it?" in answer.json()["detail"]


async def test_the_seed_of_a_request_decides_and_the_path_does_not_matter_then(scripted: Make, answers: dict[str, str]) -> None:
    client = scripted(rule="answers", answers=answers, accuracy=0.5, seed=1)

    async def outcomes(prefix: str) -> list[str]:
        bodies = [{"input": "q0", "metadata": {"extra_body": orjson.dumps({"seed": seed}).decode()}} for seed in range(30)]
        return [_text(await client.post(f"{prefix}/v1/responses", json=body)) for body in bodies]

    bare = await outcomes("")
    assert set(bare) == {"a0", "?"}
    assert await outcomes("/ng-rollout/5-1") == bare


async def test_without_a_seed_the_rollout_of_the_path_tells_repeats_apart(scripted: Make, answers: dict[str, str]) -> None:
    client = scripted(rule="answers", answers=answers, accuracy=0.5, seed=1)
    texts = [_text(await client.post(f"/ng-rollout/0-{repeat}/v1/responses", json={"input": "q0"})) for repeat in range(30)]
    assert set(texts) == {"a0", "?"}
    again = [_text(await client.post(f"/ng-rollout/0-{repeat}/v1/responses", json={"input": "q0"})) for repeat in range(30)]
    assert again == texts
    bare = {_text(await client.post("/v1/responses", json={"input": "q0"})) for _ in range(10)}
    assert len(bare) == 1


async def test_answers_are_the_same_bytes_at_any_concurrency_and_order(scripted: Make, answers: dict[str, str]) -> None:
    client = scripted(rule="answers", answers=answers, accuracy=0.7, seed=7)
    asked = [(f"/ng-rollout/{task}-{repeat}/v1/responses", {"input": f"q{task}"}) for task in range(40) for repeat in range(2)]

    async def ask(concurrency: int, backwards: bool = False) -> dict[str, bytes]:
        slots = asyncio.Semaphore(concurrency)

        async def one(path: str, body: dict[str, Any]) -> tuple[str, bytes]:
            async with slots:
                return path, (await client.post(path, json=body)).content

        order = asked[::-1] if backwards else asked
        return dict(await asyncio.gather(*(one(path, body) for path, body in order)))

    alone = await ask(1)
    assert await ask(64, backwards=True) == alone
    assert len({orjson.loads(content)["id"] for content in alone.values()}) == len(asked)


@pytest.mark.parametrize("extra", ["{", '"x"', "{}"])
async def test_an_extra_body_without_a_seed_is_no_sample(scripted: Make, answers: dict[str, str], extra: str) -> None:
    answer = await scripted(rule="answers", answers=answers).post("/v1/responses", json={"input": "q0", "metadata": {"extra_body": extra}})
    assert answer.status_code == (422 if extra == "{" else 200)


async def test_first_tool_call_then_text(scripted: Make) -> None:
    client = scripted(rule="first_tool_call", text="Done.")
    first = (await client.post("/v1/responses", json={"input": [USER], "tools": [TOOL]})).json()
    call = first["output"][0]
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", "add", '{"a":1}')
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "4"}
    second = await client.post("/v1/responses", json={"input": [USER, call, output], "tools": [TOOL]})
    assert _text(second) == "Done."
    assert second.json()["id"] != first["id"]


async def test_turns_of_a_script(scripted: Make) -> None:
    turns = [{"calls": [{"name": "add", "arguments": "not json"}, {"name": "add", "arguments": {"a": 1}}]}, {}, {"text": "end"}]
    client = scripted(rule="turns", turns=turns)
    first = (await client.post("/v1/responses", json={"input": [USER]})).json()
    assert [item["arguments"] for item in first["output"]] == ["not json", '{"a":1}']
    silent = await client.post("/v1/responses", json={"input": [USER, *first["output"]]})
    assert silent.json()["output"] == []


async def test_dialogues_of_a_file(scripted: Make, tmp_path: Path) -> None:
    path = tmp_path / "dialogues.jsonl"
    path.write_bytes(orjson.dumps({"prompt": [USER], "turns": [{"calls": [{"name": "add", "arguments": {"a": 2}}]}, {"text": "4"}]}))
    client = scripted(rule="dialogues", dialogues={"jsonl": str(path)})
    call = (await client.post("/v1/responses", json={"input": [USER], "tools": [TOOL]})).json()["output"][0]
    assert call["arguments"] == '{"a":2}'
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "4"}
    assert _text(await client.post("/v1/responses", json={"input": [USER, call, output], "tools": [TOOL]})) == "4"
    assert (await client.post("/v1/responses", json={"input": "something else"})).status_code == 422


async def test_constant_and_echo(scripted: Make) -> None:
    assert _text(await scripted(rule="constant", text="k").post("/v1/responses", json={"input": "q"})) == "k"
    assert _text(await scripted(rule="echo").post("/v1/responses", json={"input": "q"})) == "q"


async def test_the_chat_dialect_follows_the_same_script(scripted: Make, answers: dict[str, str]) -> None:
    client = scripted(rule="answers", answers=answers)
    body = (await client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "q1"}], "seed": 3})).json()
    assert body["choices"][0]["message"]["content"] == "a1"
    assert body["choices"][0]["finish_reason"] == "stop"


async def test_the_chat_dialect_calls_tools(scripted: Make) -> None:
    client = scripted(rule="first_tool_call", text="Done.")
    tool = {"type": "function", "function": {"name": "add", "parameters": TOOL["parameters"]}}
    messages: list[dict[str, Any]] = [USER]
    first = (await client.post("/v1/chat/completions", json={"messages": messages, "tools": [tool]})).json()["choices"][0]
    assert first["finish_reason"] == "tool_calls"
    call = first["message"]["tool_calls"][0]
    messages += [first["message"], {"role": "tool", "tool_call_id": call["id"], "content": "4"}]
    second = (await client.post("/v1/chat/completions", json={"messages": messages, "tools": [tool]})).json()["choices"][0]
    assert second["message"]["content"] == "Done."


async def test_unknown_fields_are_a_422(scripted: Make) -> None:
    answer = await scripted(rule="echo").post("/v1/responses", json={"input": "q", "unknown": 1})
    assert answer.status_code == 422


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"rule": "answers"}, "rule 'answers' needs 'answers'"),
        ({"rule": "constant"}, "rule 'constant' needs 'text'"),
        ({"rule": "first_tool_call"}, "rule 'first_tool_call' needs 'text'"),
        ({"rule": "turns"}, "rule 'turns' needs 'turns'"),
        ({"rule": "dialogues"}, "rule 'dialogues' needs 'dialogues'"),
        ({"rule": "dialogues", "dialogues": {"jsonl": "/nowhere/x.jsonl"}}, "/nowhere/x.jsonl: the dialogues file cannot be read"),
        ({"rule": "answers", "answers": {"jsonl": "x"}, "answer_template": "none"}, "answer_template must hold"),
        ({"rule": "answers", "answers": {"jsonl": "x"}, "accuracy": 1.5}, "accuracy"),
        ({"rule": "guess"}, "rule"),
        ({}, "rule"),
        ({"rule": "answers", "answers": {"jsonl": "/nowhere/x.jsonl"}}, "/nowhere/x.jsonl: the answers file cannot be read"),
    ],
)
def test_a_config_that_cannot_work_is_refused_at_start(scripted: Make, block: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        scripted(**block)
    assert message in str(caught.value)
