"""vllm_model in front of a vLLM look-alike (contract-servers 4.4, 4.5)."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from gym_compose.wire.errors import InvalidInputError, PrerequisiteError

Json = dict[str, Any]
BASICS = {"api_key": "k", "model": "up", "return_token_id_information": False, "uses_reasoning_parser": True}
USER = {"role": "user", "content": "q"}
TOOL = {"type": "function", "name": "f", "parameters": {}, "strict": True}
TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3, 4], "generation_log_probs": [-0.1, -0.2]}
LOGPROBS = {"content": [{"token": "token_id:3", "logprob": -0.1}, {"token": "token_id:4", "logprob": -0.2}]}


async def _post(client: httpx.AsyncClient, body: Json, path: str = "/v1/responses") -> Json:
    answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    made: Json = answer.json()
    return made


def _chat(*messages: Json, **fields: Any) -> Json:
    return {"messages": [*messages] or [USER], **fields}


async def test_a_response_is_made_of_a_chat(model: Any, vllm: Any) -> None:
    vllm.chat({"content": "hi", "reasoning": "hm", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]})
    answer = await _post(model(), {"input": [USER], "tools": [TOOL], "max_output_tokens": 5, "model": "theirs", "temperature": 0.5})
    assert vllm.asked[0][0] == "/v1/chat/completions"
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]  # vLLM would print strict into the prompt
    assert vllm.body == {"messages": [USER], "max_tokens": 5, "temperature": 0.5, "tools": tools, "model": "up"}
    assert [item["type"] for item in answer["output"]] == ["reasoning", "message", "function_call"]
    assert answer["output"][0]["summary"] == [{"type": "summary_text", "text": "hm"}]
    assert (answer["model"], answer["created_at"], answer["temperature"], answer["status"]) == ("up", 7, 0.5, "completed")


async def test_chat_answers_hold_thoughts_in_the_text(model: Any, vllm: Any) -> None:
    vllm.chat({"content": "hi", "reasoning_content": "hm"})
    answer = await _post(model(), _chat(), "/v1/chat/completions")
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "<think>hm</think>hi"}


async def test_all_dialects_are_served_streaming_included(model: Any, vllm: Any) -> None:
    client = model()
    message = {"model": "c", "max_tokens": 5, "messages": [USER]}
    assert (await _post(client, message, "/v1/messages"))["content"] == [{"text": "hi", "type": "text"}]
    for path, body, last in (
        ("/v1/messages", message, 'data: {"type":"message_stop"}'),
        ("/v1/responses", {"input": "q"}, "event: response.completed"),
        ("/v1/chat/completions", _chat(), "data: [DONE]"),
    ):
        assert last in (await client.post(f"/ng-rollout/0-0{path}", json={**body, "stream": True})).text
    assert all("stream" not in body for _, body in vllm.asked)


@pytest.mark.parametrize(
    ("block", "sent"),
    [
        ({}, {"content": "a", "reasoning_content": "t", "reasoning": "t"}),
        ({"reasoning_field": "reasoning"}, {"content": "a", "reasoning": "t"}),
        ({"uses_interleaved_reasoning": False}, {"content": "a"}),
        ({"preserve_reasoning_in_assistant_content": True}, {"content": "<think>t</think>a"}),
        ({"uses_reasoning_parser": False}, {"content": "<think>t</think>a"}),
    ],
)
async def test_earlier_thoughts_go_where_the_config_says(model: Any, vllm: Any, block: Json, sent: Json) -> None:
    items = [
        USER,
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "t"}]},
        {"role": "assistant", "content": "a"},
    ]
    await _post(model(**block), {"input": [*items, USER]})
    assert vllm.body["messages"][1] == {"role": "assistant", **sent}


async def test_thoughts_without_a_parser_are_an_error_of_the_config(model: Any, vllm: Any) -> None:
    vllm.chat({"content": "hi", "reasoning": "hm"})
    answer = await model(uses_reasoning_parser=False).post("/v1/responses", json={"input": "q"})
    assert answer.status_code == 500
    assert "uses_reasoning_parser is false" in answer.json()


async def test_who_wins_in_a_request(model: Any, vllm: Any) -> None:
    client = model(
        extra_body={"top_k": 1, "temperature": 1.0, "seed": 1, "min_p": 0.1},
        sampling_overrides={"top_p": 0.7},
        chat_template_kwargs={"a": 1, "b": 1},
    )
    metadata = {"extra_body": '{"seed": 2, "top_k": 2}', "chat_template_kwargs": '{"b": 2}'}
    await _post(client, _chat(temperature=0.5, top_p=0.1, metadata=metadata, chat_template_kwargs={"a": 9}), "/v1/chat/completions")
    expected = {"top_k": 2, "seed": 2, "min_p": 0.1, "temperature": 0.5, "top_p": 0.7, "chat_template_kwargs": {"a": 1, "b": 2}}
    assert {name: vllm.body[name] for name in expected} == expected


async def test_template_variables_of_a_request_are_forwarded_when_the_config_lets_them(model: Any, vllm: Any) -> None:
    client = model(chat_template_kwargs={"a": 1}, forward_request_chat_template_kwargs=True)
    await _post(client, _chat(chat_template_kwargs={"a": 9}), "/v1/chat/completions")
    assert vllm.body["chat_template_kwargs"] == {"a": 9}


@pytest.mark.parametrize("name", ["extra_body", "chat_template_kwargs"])
async def test_metadata_that_is_no_object_is_an_error(model: Any, name: str) -> None:
    answer = await model().post("/v1/responses", json={"input": "q", "metadata": {name: "[]"}})
    assert answer.status_code == 500
    assert f"metadata.{name} is not a JSON object" in answer.json()


async def test_roles_continuations_and_conversations(model: Any, vllm: Any) -> None:
    client = model(
        replace_developer_role_with_system=True, continue_final_assistant_message=True, forward_session_id_as_conversation_id=True
    )
    vllm.chat({"content": "b", "reasoning": "a"})
    answer = await _post(
        client, _chat({"role": "developer", "content": "d"}, USER, {"role": "assistant", "content": "A:"}), "/v1/chat/completions"
    )
    assert vllm.body["messages"][0]["role"] == "system"
    assert (vllm.body["continue_final_message"], vllm.body["add_generation_prompt"]) == (True, False)
    assert vllm.body["conversation_params"]["conversation_id"]
    assert answer["choices"][0]["message"]["content"] == "ab"


async def test_an_empty_turn_is_not_asked_about_again(model: Any, vllm: Any) -> None:
    items = [USER, {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "t"}]}]
    answer = await _post(model(sequential_reasoning_allowed=False), {"input": items})
    assert (answer["incomplete_details"], vllm.asked) == ({"reason": "content_filter"}, [])


OVERFLOW = {"object": "error", "message": "This model's maximum context length is 8 tokens", "code": 400}


@pytest.mark.parametrize("block", [{}, {"use_completions_api": True, "uses_reasoning_parser": False}])
async def test_a_conversation_that_is_too_long_is_an_empty_answer(model: Any, vllm: Any, block: Json) -> None:
    vllm.answers = dict.fromkeys(("/v1/chat/completions", "/v1/completions"), (400, OVERFLOW))
    answer = await _post(model(**block), {"input": "q"})
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert answer["output"][0]["content"][0]["text"] == ""


async def test_or_its_400_passes_and_so_does_any_other(model: Any, vllm: Any) -> None:
    vllm.answers["/v1/chat/completions"] = (400, OVERFLOW)
    answer = await model(propagate_context_overflow_errors=True).post("/v1/responses", json={"input": "q"})
    assert (answer.status_code, answer.json()) == (400, OVERFLOW)
    vllm.answers["/v1/chat/completions"] = (400, {"message": "odd"})
    assert (await model().post("/v1/responses", json={"input": "q"})).status_code == 400


TRAINING = {"return_token_id_information": True}


async def _trained(client: httpx.AsyncClient) -> Json:
    answer = await _post(client, {"input": "q"})
    item: Json = answer["output"][-1]
    return {name: item.get(name) for name in TOKENS}


async def test_token_ids_from_logprobs_and_tokenize(model: Any, vllm: Any) -> None:
    vllm.chat({"content": "hi"}, logprobs=LOGPROBS)
    vllm.answers["/tokenize"] = (200, {"tokens": [1, 2]})
    client = model(**TRAINING, chat_template_kwargs={"a": 1})
    assert await _trained(client) == TOKENS
    (_, asked), (path, tokenized) = vllm.asked
    assert (asked["logprobs"], asked["top_logprobs"], asked["return_tokens_as_token_ids"]) == (True, 0, True)
    assert "return_token_ids" not in asked
    assert path == "/tokenize"
    assert tokenized == {"model": "up", "messages": asked["messages"], "chat_template_kwargs": {"a": 1}}
    chat = await _post(client, _chat(), "/v1/chat/completions")
    assert "logprobs" not in chat["choices"][0]
    assert chat["choices"][0]["message"]["generation_token_ids"] == [3, 4]


async def test_token_ids_from_the_completion_or_from_the_message(model: Any, vllm: Any) -> None:
    vllm.chat({"content": "hi"}, logprobs=LOGPROBS, token_ids=[3, 4])
    vllm.answers["/v1/chat/completions"][1]["prompt_token_ids"] = [1, 2]
    assert await _trained(model(**TRAINING, request_prompt_and_generation_token_ids=True)) == TOKENS
    assert vllm.body["return_token_ids"] is True
    vllm.chat({"content": "hi", **TOKENS, "routed_experts": "x"})
    assert await _trained(model(**TRAINING)) == TOKENS


async def test_token_ids_of_earlier_answers_go_back_to_the_endpoint(model: Any, vllm: Any) -> None:
    vllm.chat({"content": "hi", **TOKENS})
    client = model(**TRAINING)
    said = (await _post(client, {"input": [USER]}))["output"]
    await _post(client, {"input": [USER, *said, USER]})
    assert vllm.body["messages"][1] == {"role": "assistant", "content": "hi", **TOKENS}


@pytest.mark.parametrize(
    ("message", "choice", "told"),
    [
        ({}, {}, "sent none"),
        ({}, {"logprobs": {"content": [{"token": "x", "logprob": 0}]}}, "token_id:<n>"),
        ({}, {"logprobs": {"content": [{"token": "token_id:1", "logprob": None}]}}, "not a number"),
        ({}, {"logprobs": LOGPROBS, "token_ids": [3, 4]}, "prompt_token_ids of the completion: not a list"),
        ({"prompt_token_ids": [1]}, {}, "without generation_token_ids, generation_log_probs"),
        ({**TOKENS, "generation_log_probs": []}, {}, "2 generated tokens and 0 log probabilities"),
        ({**TOKENS, "generation_token_ids": "x"}, {}, "not a list"),
    ],
)
async def test_token_ids_in_part_are_an_error(model: Any, vllm: Any, message: Json, choice: Json, told: str) -> None:
    vllm.chat({"content": "hi", **message}, **choice)
    answer = await model(**TRAINING).post("/v1/responses", json={"input": "q"})
    assert answer.status_code == 500
    assert told in answer.json()


@pytest.mark.parametrize("message", [{}, TOKENS])
async def test_sources_that_disagree_are_an_error(model: Any, vllm: Any, message: Json) -> None:
    vllm.chat({"content": "hi", **message}, logprobs=LOGPROBS, token_ids=[9, 9])
    vllm.answers["/v1/chat/completions"][1]["prompt_token_ids"] = [1, 2]
    answer = await model(**TRAINING).post("/v1/responses", json={"input": "q"})
    assert answer.status_code == 500
    assert "disagree" in answer.json()


async def test_token_ids_are_of_one_answer(model: Any, vllm: Any) -> None:
    answer = await model(**TRAINING).post("/v1/chat/completions", json=_chat(n=2))
    assert (answer.status_code, vllm.asked) == (500, [])


async def test_audio_stands_before_the_text(model: Any, vllm: Any, tmp_path: Path) -> None:
    (tmp_path / "a.mp3").write_bytes(b"AA")
    client = model(audio_root=str(tmp_path))
    url = "data:audio/mpeg;base64," + base64.b64encode(b"AA").decode()
    await _post(client, {"input": [USER], "metadata": {"audio_path": "a.mp3", "k": "v"}})
    assert vllm.body["messages"][0]["content"] == [{"type": "audio_url", "audio_url": {"url": url}}, {"type": "text", "text": "q"}]
    assert vllm.body["metadata"] == {"k": "v"}
    await _post(client, {"input": [{"role": "system", "content": "s"}], "metadata": {"audio_data": "data:x"}})
    assert vllm.body["messages"][1] == {"role": "user", "content": [{"type": "audio_url", "audio_url": {"url": "data:x"}}]}
    assert "metadata" not in vllm.body


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({"audio_data": "x", "audio_path": "y"}, "one of them is meant"),
        ({"audio_path": "a.mp3"}, "audio_root is not set"),
        ({"audio_path": "/a.txt"}, "of a kind that is not known"),
        ({"audio_paths": "x"}, "must be a list"),
        ({"audio_path": "/nowhere/a.wav"}, "No such file"),
    ],
)
async def test_audio_that_cannot_be_sent(model: Any, vllm: Any, metadata: Json, told: str) -> None:
    answer = await model().post("/v1/responses", json={"input": "q", "metadata": metadata})
    assert (answer.status_code, vllm.asked) == (500, [])
    assert told in answer.json()


COMPLETIONS = {"use_completions_api": True, "uses_reasoning_parser": False}


def _completion(vllm: Any, **choice: Any) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    vllm.answers["/v1/completions"] = (200, {"id": "x", "created": 3, "model": "s", "choices": [{"text": "out", **choice}], "usage": usage})


async def test_a_base_model_gets_the_prompt_as_it_is(model: Any, vllm: Any) -> None:
    _completion(vllm)
    client = model(**COMPLETIONS, extra_body={"top_k": 2}, sampling_overrides={"temperature": 1.0})
    body = {"input": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "input_text", "text": "q"}]}]}
    answer = await _post(client, {**body, "max_output_tokens": 4, "temperature": 0.0})
    assert vllm.asked == [("/v1/completions", {"top_k": 2, "model": "up", "prompt": "s\n\nq", "max_tokens": 4, "temperature": 1.0})]
    assert answer["output"][0]["content"][0]["text"] == "out"
    assert answer["usage"]["total_tokens"] == 2
    chat = await _post(client, _chat(max_completion_tokens=3, top_logprobs=2), "/v1/chat/completions")
    assert (vllm.body["max_tokens"], vllm.body["logprobs"]) == (3, 2)
    assert chat["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    "body",
    [
        {"input": [USER, USER]},
        {"input": [{"role": "assistant", "content": "a"}]},
        {"input": "q", "tools": [TOOL]},
        {"input": "q", "metadata": {"audio_data": "x"}},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "u"}]}]},
    ],
)
async def test_what_is_no_prompt_is_refused(model: Any, vllm: Any, body: Json) -> None:
    answer = await model(**COMPLETIONS).post("/v1/responses", json=body)
    assert (answer.status_code, vllm.asked) == (500, [])
    assert "ConversionError" in answer.json()


async def test_token_ids_of_a_base_model(model: Any, vllm: Any) -> None:
    _completion(vllm, token_ids=[3, 4], prompt_token_ids=[1, 2], logprobs={"token_logprobs": [-0.1, -0.2], "tokens": ["a", "b"]})
    assert await _trained(model(**COMPLETIONS, **TRAINING)) == TOKENS
    assert (vllm.body["logprobs"], vllm.body["return_token_ids"], vllm.body["return_tokens_as_token_ids"]) == (0, True, True)
    _completion(vllm, logprobs={"token_logprobs": [-0.1, -0.2], "tokens": ["token_id:3", "token_id:4"]})
    vllm.answers["/tokenize"] = (200, {"tokens": [1, 2]})
    assert await _trained(model(**COMPLETIONS, **TRAINING, extra_body={"add_special_tokens": False})) == TOKENS
    assert vllm.asked[-1] == ("/tokenize", {"model": "up", "prompt": "q", "add_special_tokens": False})
    for wrong in ({"tokens": ["x"], "token_logprobs": [0.0]}, {"tokens": ["token_id:1"], "token_logprobs": []}, {}):
        _completion(vllm, logprobs=wrong)
        assert (await model(**COMPLETIONS, **TRAINING).post("/v1/responses", json={"input": "q"})).status_code == 500


async def test_an_endpoint_with_responses_of_its_own_is_passed_through(model: Any, vllm: Any) -> None:
    answer = {"id": "r", "created_at": 1, "model": "s", "object": "response", "output": [], "parallel_tool_calls": True}
    vllm.answers["/v1/responses"] = (200, {**answer, "tool_choice": "auto", "tools": []})
    client = model(is_responses_native=True, chat_template_kwargs={"a": 1}, sampling_overrides={"top_p": 0.5}, extra_body={"user": "u"})
    made = await _post(client, {"input": "q", "user": "me"})
    assert vllm.asked == [("/v1/responses", {"user": "me", "input": "q", "model": "up", "chat_template_kwargs": {"a": 1}, "top_p": 0.5})]
    assert made["id"] == "r"


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ({"supply_prefix_token_ids": True, **TRAINING}, "supply_prefix_token_ids needs"),
        ({"is_responses_native": True, **TRAINING}, "does not go with return_token_id_information"),
        ({"reasoning_field": "odd"}, "reasoning_field"),
        ({"base_url": []}, "base_url"),
    ],
)
def test_a_block_that_cannot_be_served(model: Any, block: Json, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        model(**block)


def test_rendering_needs_transformers(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(PrerequisiteError, match="transformers"):
        model(**COMPLETIONS, render_chat_template=True)


async def test_the_tokenizers_template_renders_any_conversation(model: Any, vllm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Tokenizer:
        chat_template = "t"

        def apply_chat_template(self, conversation: list[Json], **kwargs: Any) -> str:
            return orjson.dumps([[message["role"] for message in conversation], kwargs]).decode()

    class Transformers:
        class AutoTokenizer:
            @staticmethod
            def from_pretrained(name: str, *, trust_remote_code: bool) -> Tokenizer:
                assert (name, trust_remote_code) == ("tok", True)
                return Tokenizer()

    monkeypatch.setitem(sys.modules, "transformers", Transformers)
    _completion(vllm)
    client = model(**COMPLETIONS, render_chat_template=True, tokenizer="tok", chat_template_kwargs={"a": 1})
    await _post(client, {"input": [USER, {"role": "assistant", "content": "a"}, USER], "tools": [TOOL]})
    roles, kwargs = orjson.loads(vllm.body["prompt"])
    assert roles == ["user", "assistant", "user"]
    assert (kwargs["a"], kwargs["add_generation_prompt"], kwargs["tools"][0]["function"]["name"]) == (1, True, "f")


def test_the_launcher_starts_it_from_a_slice(servers: Any, mock_endpoint: str) -> None:
    block = {**BASICS, "base_url": [mock_endpoint]}
    servers.start({"policy_model": {"responses_api_models": {"vllm_model": block}}})
    with httpx.Client(base_url=servers.url("policy_model")) as client:
        answer = client.post("/ng-rollout/0-0/v1/responses", json={"input": "q", "tools": [TOOL]})
        assert answer.json()["output"][0]["type"] == "function_call"
        streamed = client.post("/v1/messages", json={"model": "m", "max_tokens": 5, "messages": [USER], "stream": True})
        assert "message_stop" in streamed.text
