"""Our conversions between dialects against the peer's own, on generated requests and answers.

The peer's converters are imported from the unpacked wheel, without the rest of it: they need the pinned ``openai`` and ``anthropic``
packages of the ``dev`` extra and one module that stands in for its server code.
"""

from __future__ import annotations

import copy
import importlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from gym_compose.serving.dialects import chat_stream, messages_answer, responses_stream, to_chat_request, to_message, to_response
from gym_compose.serving.dialects.errors import InvalidModelAnswer
from gym_compose.serving.dialects.messages_request import to_responses_params
from gym_compose.wire.items import OPAQUE_TYPES, UNTYPED, check_input_item, complete_input_item, input_type
from gym_compose.wire.responses import ResponsesCreateParams, ResponsesObject

Json = dict[str, Any]
EXAMPLES = settings(
    derandomize=True, max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@dataclass(frozen=True)
class Peer:
    """The peer's modules."""

    types: Any
    converter: Any
    messages: Any
    responses_stream: Any
    chat_stream: Any

    def params(self, body: Json) -> Any:
        return self.types.NeMoGymResponseCreateParamsNonStreaming.model_validate(body)


@pytest.fixture(scope="module")
def peer(peer_root: Path) -> Iterator[Peer]:
    """The peer's modules, taken out of ``sys.modules`` again afterwards."""
    pytest.importorskip("openai")
    pytest.importorskip("anthropic")
    package = ModuleType("nemo_gym")
    package.__path__ = [str(peer_root / "nemo_gym")]
    server = ModuleType("nemo_gym.server_utils")
    for name in ("ClientResponse", "ClientResponseError"):
        setattr(server, name, type(name, (Exception,), {}))
    for name in ("get_response_json", "raise_for_status", "request", "_GLOBAL_AIOHTTP_CLIENT_REQUEST_DEBUG"):
        setattr(server, name, None)
    server.MAX_NUM_TRIES = 3  # type: ignore[attr-defined]
    before = set(sys.modules)
    sys.modules |= {"nemo_gym": package, "nemo_gym.server_utils": server}
    try:
        yield Peer(
            types=importlib.import_module("nemo_gym.openai_utils"),
            converter=importlib.import_module("nemo_gym.responses_converter"),
            messages=importlib.import_module("nemo_gym.anthropic_converter").AnthropicConverter(),
            responses_stream=importlib.import_module("nemo_gym.responses_streaming"),
            chat_stream=importlib.import_module("nemo_gym.chat_streaming"),
        )
    finally:
        for name in set(sys.modules) - before:
            if name.partition(".")[0] == "nemo_gym":
                del sys.modules[name]


TEXT = st.text(st.sampled_from("ab <>/\n"), max_size=6) | st.sampled_from(["<think>t</think>x", "<think>a</think><think>b</think>"])
NAME = st.sampled_from(["f", "g", "ns__f"])
TOKENS: Json = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"}


def _maybe(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({}, optional=optional)


def _dict(required: dict[str, st.SearchStrategy[Any]], **optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries(required, optional=optional)


PART = _dict({"type": st.just("input_text"), "text": TEXT}) | st.just(IMAGE)
OUTPUT_PART = _dict({"type": st.just("output_text"), "text": TEXT, "annotations": st.just([])}) | _dict(
    {"type": st.just("refusal"), "refusal": TEXT}
)
ITEM = st.one_of(
    _dict(
        {"role": st.sampled_from(["user", "system", "developer", "assistant"]), "content": TEXT | st.lists(PART, max_size=3)},
        type=st.just("message"),
        status=st.just("completed"),
    ),
    _dict(
        {
            "type": st.just("message"),
            "role": st.just("assistant"),
            "id": st.just("m"),
            "content": st.lists(OUTPUT_PART, min_size=1, max_size=2),
        },
    ),
    _dict({"type": st.just("function_call"), "call_id": NAME, "name": NAME, "arguments": st.just('{"a": 1}')}, id=NAME),
    _dict(
        {
            "type": st.just("function_call_output"),
            "call_id": NAME,
            "output": TEXT | st.lists(_dict({"type": st.just("input_text"), "text": TEXT}), max_size=2),
        }
    ),
    _dict(
        {
            "type": st.just("reasoning"),
            "id": NAME,
            "summary": st.lists(_dict({"type": st.just("summary_text"), "text": TEXT}), max_size=2),
        }
    ),
    _dict({"role": st.just("tool"), "tool_call_id": NAME, "content": TEXT}),
    st.just({"type": "compaction", "id": "c", "encrypted_content": "x"}),
)
SCHEMA = st.just({"type": "object"})
TOOL = st.one_of(
    _dict({"type": st.just("function"), "name": NAME, "parameters": SCHEMA, "strict": st.booleans()}, description=TEXT),
    _dict({"type": st.just("custom"), "name": NAME}, format=st.just({"type": "grammar", "syntax": "lark", "definition": "d"})),
    st.just({"type": "web_search"}),
)
PARAMS = _dict(
    {"input": TEXT | st.lists(ITEM | ITEM.map(lambda item: {**item, **TOKENS}), max_size=6)},
    instructions=TEXT,
    max_output_tokens=st.just(9),
    temperature=st.just(0.5),
    top_p=st.just(0.9),
    metadata=st.just({"extra_body": '{"seed": 1}'}),
    model=st.just("m"),
    user=st.just("u"),
    store=st.booleans(),
    parallel_tool_calls=st.booleans(),
    tools=st.lists(TOOL, max_size=2),
    tool_choice=st.sampled_from(["auto", "none", "required"])
    | st.sampled_from(
        [{"type": "function", "name": "f"}, {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}]
    ),
    reasoning=st.sampled_from([{"effort": "low"}, {"effort": "low", "summary": "auto"}, {"summary": None}]),
    text=st.sampled_from(
        [
            {"verbosity": "low"},
            {"format": {"type": "text"}},
            {"format": {"type": "json_object"}},
            {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}},
        ]
    ),
    truncation=st.just("auto"),
)


def _outcome(function: Any, *arguments: Any, **options: Any) -> Any:
    """The result, or the word for a refusal."""
    try:
        return function(*arguments, **options)
    except (NotImplementedError, ValueError, ValidationError, KeyError, AssertionError, TypeError, InvalidModelAnswer):
        return "refused"


def _plain(value: Any) -> Any:
    """JSON with every made-up id as ``ID``."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return orjson.loads(re.sub(r"(resp|msg|rs)_[0-9a-f]{32}", "ID", text))


@EXAMPLES
@given(PARAMS, st.booleans())
def test_a_responses_request_becomes_the_same_chat_request(peer: Peer, body: Json, with_tokens: bool) -> None:
    converter = peer.converter.ResponsesConverter(return_token_id_information=with_tokens)

    def theirs() -> Any:
        made = converter.responses_to_chat_completion_create_params(peer.params(copy.deepcopy(body)))
        return made.model_dump(exclude_unset=True, mode="json")

    def ours() -> Any:
        return to_chat_request(ResponsesCreateParams.model_validate(copy.deepcopy(body)).given_fields(), with_tokens=with_tokens)

    assert _outcome(ours) == _outcome(theirs)


MESSAGE = _dict(
    {"role": st.just("assistant"), "content": st.none() | TEXT},
    refusal=TEXT,
    tool_calls=st.lists(
        _dict({"id": NAME, "type": st.just("function"), "function": _dict({"name": NAME, "arguments": st.just("{}")})}), max_size=2
    ),
)
USAGE = _dict(
    {"prompt_tokens": st.just(3), "completion_tokens": st.just(4), "total_tokens": st.sampled_from([7, 9])},
    prompt_tokens_details=st.just({"cached_tokens": 2}),
    cached_input_tokens=st.just(1),
    completion_tokens_details=st.sampled_from([{"reasoning_tokens": 1}, {"reasoning_tokens": None}]),
)


@EXAMPLES
@given(
    MESSAGE,
    st.sampled_from(["stop", "length", "tool_calls", "content_filter"]),
    st.none() | USAGE,
    st.booleans(),
    st.booleans(),
    st.sampled_from([{}, {"temperature": 0.5, "metadata": {"k": "v"}, "instructions": "i", "tool_choice": "none"}]),
)
def test_a_chat_completion_becomes_the_same_response(
    peer: Peer, message: Json, finish: str, usage: Json | None, thoughts: bool, with_tokens: bool, fields: Json
) -> None:
    if with_tokens:
        message = {**message, **TOKENS}
    body = {"input": "q", "model": "m", **fields}
    completion = {
        "id": "c",
        "object": "chat.completion",
        "created": 7,
        "model": "other",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": usage,
    }
    converter = peer.converter.ResponsesConverter(return_token_id_information=with_tokens, uses_reasoning_parser=thoughts)
    made = peer.types.NeMoGymChatCompletion.model_validate(copy.deepcopy(completion))
    theirs = converter.chat_completion_to_response(peer.params(body), made).model_dump(mode="json")
    given_fields = ResponsesCreateParams.model_validate(body).given_fields()
    ours = ResponsesObject.model_validate(
        to_response(completion, given_fields, model="m", parse_thoughts=thoughts, with_tokens=with_tokens)
    ).full()
    assert _plain(ours) == _plain(theirs)


BLOCK = st.one_of(
    _dict({"type": st.just("text"), "text": TEXT}, cache_control=st.just({"type": "ephemeral"})),
    st.just({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}),
    st.just({"type": "image", "source": {"type": "url", "url": "https://h/i.png"}}),
    st.just({"type": "image", "source": {"type": "base64", "media_type": "image/tiff", "data": "AA=="}}),
    _dict({"type": st.just("tool_use"), "id": NAME, "name": NAME, "input": st.just({"a": [1]})}),
    _dict({"type": st.just("tool_result"), "tool_use_id": NAME}, content=TEXT | st.lists(_dict({"type": st.just("text"), "text": TEXT}))),
    _dict({"type": st.just("thinking"), "thinking": TEXT}, signature=st.just("s")),
    st.just({"type": "document"}),
)
MESSAGES_BODY = _dict(
    {
        "messages": st.lists(
            _dict({"role": st.sampled_from(["user", "assistant"]), "content": TEXT | st.lists(BLOCK, max_size=4)}), max_size=3
        )
    },
    model=st.just("claude"),
    max_tokens=st.just(5),
    temperature=st.just(0.1),
    top_k=st.just(3),
    system=TEXT | st.lists(_dict({"type": st.just("text"), "text": TEXT}), max_size=2),
    tools=st.lists(_dict({"name": NAME}, description=TEXT, input_schema=st.just({"type": "object"})), max_size=2),
    tool_choice=st.sampled_from([{"type": "auto"}, {"type": "any"}, {"type": "none"}, {"type": "tool", "name": "f"}, {"type": "odd"}]),
    thinking=st.just({"type": "enabled", "budget_tokens": 1}),
)


@EXAMPLES
@given(MESSAGES_BODY)
def test_a_messages_request_becomes_the_same_responses_request(peer: Peer, body: Json) -> None:
    def theirs() -> Any:
        made = peer.messages.anthropic_request_to_responses(copy.deepcopy(body)).model_dump(mode="json")
        made["input"] = [{k: v for k, v in item.items() if k != "arguments"} for item in made["input"]]
        return _plain(made)

    def ours() -> Any:
        made = ResponsesCreateParams.model_validate(to_responses_params(copy.deepcopy(body))).full()
        # JSON of arguments is written without spaces here.
        made["input"] = [{k: v for k, v in item.items() if k != "arguments"} for item in made["input"]]
        return _plain(made)

    assert _outcome(ours) == _outcome(theirs)


OUTPUT = st.lists(
    st.one_of(
        _dict(
            {
                "type": st.just("message"),
                "role": st.just("assistant"),
                "id": st.just("m"),
                "content": st.lists(OUTPUT_PART, min_size=1, max_size=2),
            }
        ),
        _dict(
            {
                "type": st.just("reasoning"),
                "id": NAME,
                "summary": st.lists(_dict({"type": st.just("summary_text"), "text": TEXT}), max_size=2),
            },
            encrypted_content=st.just("e"),
        ),
        _dict(
            {
                "type": st.just("function_call"),
                "call_id": NAME,
                "name": NAME,
                "arguments": st.sampled_from(['{"a": 1}', "", "{}", "[]", "x"]),
            }
        ),
    ),
    max_size=4,
)


def _response(output: list[Json], **fields: Any) -> Json:
    head: Json = {"id": "resp_1", "created_at": 1, "model": "m", "object": "response", "output": output}
    return {**head, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], **fields}


@EXAMPLES
@given(OUTPUT, st.sampled_from([None, {"reason": "max_output_tokens"}, {"reason": "content_filter"}]), st.booleans())
def test_a_response_becomes_the_same_message_and_events(peer: Peer, output: list[Json], details: Any, with_usage: bool) -> None:
    usage: Json = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    usage |= {"input_tokens_details": {"cached_tokens": None}, "output_tokens_details": {"reasoning_tokens": None}}
    answer = _response(output, incomplete_details=details, **({"usage": usage} if with_usage else {}))

    def theirs() -> Any:
        made = peer.messages.responses_to_anthropic_response(peer.types.NeMoGymResponse.model_validate(answer), model="c")
        return made, _events("".join(peer.messages.anthropic_response_to_sse(made)))

    def ours() -> Any:
        made = to_message(ResponsesObject.model_validate(copy.deepcopy(answer)), "c")
        return made, _events(b"".join(messages_answer.message_events(made)).decode())

    assert _outcome(ours) == _outcome(theirs)


def _events(stream: str) -> list[tuple[str | None, Any]]:
    found = []
    for piece in stream.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in piece.split("\n") if line)
        if not lines:
            continue
        payload = lines["data"] if lines["data"] == "[DONE]" else orjson.loads(lines["data"])
        if isinstance(payload, dict):
            payload.pop("sequence_number", None)  # ours: clients of the real API count on it
            if payload.get("type") == "content_block_delta" and payload["delta"]["type"] == "input_json_delta":
                payload["delta"]["partial_json"] = orjson.loads(payload["delta"]["partial_json"])
        found.append((lines.get("event"), payload))
    return found


SPACE = _dict(
    {
        "type": st.just("namespace"),
        "name": st.just("ns"),
        "tools": st.lists(_dict({"name": NAME, "parameters": SCHEMA, "strict": st.just(False)}), max_size=2),
    }
)
NAMESPACED = {"type": "function_call", "call_id": "c", "name": "f", "namespace": "ns", "arguments": "{}"}
STREAMED_ITEM = st.one_of(
    ITEM,
    st.sampled_from([{"type": "odd"}, {"type": "message"}, NAMESPACED]),
    _dict({"type": st.just("additional_tools"), "tools": st.lists(SPACE | TOOL, max_size=2)}),
)
STREAMED = _dict(
    {"input": TEXT | st.lists(STREAMED_ITEM, max_size=5)},
    instructions=TEXT,
    tools=st.lists(TOOL | SPACE | st.sampled_from([{"type": "function", "name": "no_parameters"}, {"type": "odd"}]), max_size=3),
    client_metadata=st.just({}),
    stream=st.sampled_from([True, "true", 1]),
    stream_options=st.just({}),
    temperature=st.just(0.5),
)


@EXAMPLES
@given(STREAMED)
def test_a_streaming_request_is_sanitised_the_same(peer: Peer, body: Json) -> None:
    theirs, their_spaces = peer.responses_stream.sanitize_streaming_responses_body(copy.deepcopy(body))
    validated = peer.responses_stream.validate_streaming_responses_params(theirs).model_dump(mode="json", exclude_unset=True)
    clean, spaces = responses_stream.sanitised(copy.deepcopy(body))
    ours = ResponsesCreateParams.model_validate(clean)
    assert spaces == their_spaces
    assert sorted(ours.given_fields()) == sorted(validated)
    assert ours.tools == validated.get("tools", [])
    assert ours.instructions == validated.get("instructions")
    kept = ours.input if isinstance(ours.input, str) else [_known(item) for item in ours.input]
    assert kept == (validated["input"] if isinstance(validated["input"], str) else [_known(item) for item in validated["input"]])


def _known(item: Json) -> Json:
    """Without keys that one of both leaves out: ours pass items as they came."""
    return {name: value for name, value in item.items() if name not in ("status", "type", "tools", "server_label")}


@EXAMPLES
@given(OUTPUT)
def test_a_responses_stream_has_the_same_events(peer: Peer, output: list[Json]) -> None:
    answer = ResponsesObject.model_validate(_response(output)).full()
    spaces = {"ns__f": ("ns", "f")}
    theirs = "".join(peer.responses_stream.synthesize_responses_sse(copy.deepcopy(answer), spaces))
    assert _events(b"".join(responses_stream.response_events(answer, spaces)).decode()) == _events(theirs)


@EXAMPLES
@given(MESSAGE, st.none() | USAGE, st.booleans(), _maybe(system_fingerprint=st.just("fp")))
def test_a_chat_stream_has_the_same_chunks(peer: Peer, message: Json, usage: Json | None, with_usage: bool, more: Json) -> None:
    choice = {"index": 0, "message": {**message, "reasoning": "r"}, "finish_reason": "stop"}
    completion = {"id": "c", "created": 7, "model": "m", "choices": [choice], "usage": usage, **more}
    theirs = "".join(peer.chat_stream.synthesize_chat_completion_sse(copy.deepcopy(completion), include_usage=with_usage))
    assert _events(b"".join(chat_stream.completion_events(completion, with_usage=with_usage)).decode()) == _events(theirs)


STREAMED_CHAT = _maybe(
    messages=st.just([]),
    stream=st.just(True),
    stream_options=st.sampled_from([None, {}, {"include_usage": True}]),
    odd=st.just(1),
    thinking=st.just({}),
    seed=st.just(1),
)


@EXAMPLES
@given(STREAMED_CHAT)
def test_a_streaming_chat_request_is_sanitised_the_same(peer: Peer, body: Json) -> None:
    assert chat_stream.sanitised(body) == peer.chat_stream.sanitize_streaming_chat_body(body)


ANY = st.one_of(st.none(), st.just("x"), st.just([]), st.just({}), st.just("user"), st.just("assistant"), st.just("completed"))
LOOSE = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("id", "call_id", "name", "arguments", "output", "server_label"), ANY),
        "status": st.sampled_from([None, "completed", "odd", 5]),  # the peer breaks at a list
        "role": st.sampled_from(["user", "assistant", "system", "developer", "tool", 5]),
        "content": ANY | st.lists(PART | OUTPUT_PART, max_size=2),
        "summary": ANY,
        "type": st.sampled_from(["message", "function_call", "function_call_output", "reasoning", "odd", None]),
    },
)


@settings(EXAMPLES, max_examples=100)
@given(LOOSE | ITEM)
def test_items_that_the_peer_takes_are_taken(peer: Peer, item: Json) -> None:
    adapter = TypeAdapter(peer.types.NeMoGymResponseInputItem)
    theirs = _outcome(adapter.validate_python, copy.deepcopy(item))
    ours = _outcome(check_input_item, item)
    if theirs == "refused":
        assert ours == "refused" or input_type(item) in OPAQUE_TYPES | {UNTYPED}
        return
    assert ours == item
    if input_type(item) not in OPAQUE_TYPES | {UNTYPED}:
        assert complete_input_item(ours) == theirs.model_dump(mode="json")


def test_the_same_item_types_are_known(peer: Peer) -> None:
    tags = set(peer.types._RESPONSE_INPUT_ITEM_TAG_BY_CLASS.values())
    messages = {"easy_message", "input_message", "output_message"}
    ours = OPAQUE_TYPES | messages | {"function_call", "function_call_output", "reasoning"}
    assert {tag.removesuffix("__training") for tag in tags} == ours
