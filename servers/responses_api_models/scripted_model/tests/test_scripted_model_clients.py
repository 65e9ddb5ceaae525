"""The clients that agents and tools use read our answers, whole and streamed."""

from __future__ import annotations

from typing import Any

import pytest

TURN = {"text": "sure", "calls": [{"name": "add", "arguments": {"a": 1}}]}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
CHAT_TOOL: Any = {"type": "function", "function": {"name": "add", "parameters": SCHEMA, "strict": True}}


@pytest.fixture
def http(serve: Any) -> Any:
    return serve("responses_api_models/scripted_model", "ScriptedModelServer", {"rule": "turns", "turns": [TURN]})


@pytest.fixture
def openai_client(http: Any) -> Any:
    openai = pytest.importorskip("openai")
    return openai.AsyncOpenAI(http_client=http, base_url="http://served/ng-rollout/0-0/v1", api_key="none", max_retries=0)


@pytest.fixture
def anthropic_client(http: Any) -> Any:
    anthropic = pytest.importorskip("anthropic")
    return anthropic.AsyncAnthropic(http_client=http, base_url="http://served", api_key="none", max_retries=0)


async def test_openai_responses(openai_client: Any) -> None:
    tool = {"type": "function", "name": "add", "parameters": SCHEMA, "strict": True}
    whole = await openai_client.responses.create(model="m", input="q", tools=[tool])
    assert whole.output_text == "sure"
    stream = await openai_client.responses.create(model="m", input="q", tools=[tool], stream=True)
    events = [event async for event in stream]
    done = "response.output_item.done"
    assert [event.type for event in events] == ["response.created", done, done, "response.completed"]
    assert [event.sequence_number for event in events] == [0, 1, 2, 3]
    assert events[-1].response.model_dump() == whole.model_dump()


async def test_openai_chat(openai_client: Any) -> None:
    asked: Any = {"model": "m", "messages": [{"role": "user", "content": "q"}], "tools": [CHAT_TOOL]}
    whole = await openai_client.chat.completions.create(**asked)
    assert whole.choices[0].message.tool_calls[0].function.name == "add"
    # The helper collects chunks into one completion, so all of them must fit together.
    async with openai_client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
        collected = await stream.get_final_completion()
    assert collected.choices[0].message.content == whole.choices[0].message.content == "sure"
    assert collected.choices[0].message.tool_calls[0].function.arguments == '{"a":1}'
    assert (collected.choices[0].finish_reason, collected.usage) == ("tool_calls", whole.usage)


async def test_anthropic_messages(anthropic_client: Any) -> None:
    tool = {"name": "add", "input_schema": SCHEMA}
    asked: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "q"}], "tools": [tool]}
    whole = await anthropic_client.messages.create(**asked)
    assert [block.type for block in whole.content] == ["tool_use", "text"]
    async with anthropic_client.messages.stream(**asked) as stream:
        collected = await stream.get_final_message()
    assert [block.type for block in collected.content] == ["tool_use", "text"]
    assert (collected.content[0].id, collected.content[0].input) == (whole.content[0].id, {"a": 1})
    assert collected.content[1].text == "sure"
    assert (collected.id, collected.stop_reason, collected.usage.output_tokens) == (whole.id, "tool_use", whole.usage.output_tokens)


async def test_a_refusal_is_an_error_of_the_clients_own(openai_client: Any) -> None:
    openai = pytest.importorskip("openai")
    with pytest.raises(openai.UnprocessableEntityError):
        await openai_client.responses.create(model="m", input="q", extra_body={"unknown": 1})
