"""A model that follows a script: no network, no clock, no random source. README.md has the rules."""

from __future__ import annotations

from typing import Any, Literal

import orjson
from pydantic import Field, model_validator
from scripted_answers import Answers, AnswersConfig
from scripted_dialogues import Dialogues, DialoguesConfig, TurnConfig
from scripted_reply import chat_conversation, chat_tools, to_completion, to_response
from scripted_rules import (
    AnswersRule,
    ConstantRule,
    DialoguesRule,
    EchoRule,
    FirstToolCallRule,
    Rule,
    ScriptedReply,
    ScriptedRequest,
    TurnsRule,
    UnscriptedRequestError,
)

from gym_compose.serving import Call, HTTPError, ModelServer, ModelServerConfig
from gym_compose.wire.chat import ChatCompletionCreateParams
from gym_compose.wire.responses import ResponsesCreateParams

RuleName = Literal["answers", "constant", "dialogues", "echo", "first_tool_call", "turns"]


class ScriptedModelConfig(ModelServerConfig):
    rule: RuleName
    model: str = Field(default="scripted", min_length=1)
    answers: AnswersConfig | None = None
    answer_template: str = "{answer}"
    accuracy: float = Field(default=1.0, ge=0.0, le=1.0)
    seed: int = 0
    text: str | None = None
    turns: list[TurnConfig] = Field(default_factory=list)
    dialogues: DialoguesConfig | None = None

    @model_validator(mode="after")
    def _complete(self) -> ScriptedModelConfig:
        missing = {
            "answers": self.answers is None,
            "text": self.text is None and self.rule in ("constant", "first_tool_call"),
            "turns": not self.turns,
            "dialogues": self.dialogues is None,
        }
        needed = {"constant": "text", "first_tool_call": "text", "echo": None}.get(self.rule, self.rule)
        if needed is not None and missing[needed]:
            raise ValueError(f"rule {self.rule!r} needs {needed!r}")
        if self.rule == "answers" and "{answer}" not in self.answer_template:
            raise ValueError("answer_template must hold {answer}")
        return self


class ScriptedModelServer(ModelServer):
    """Answers ``/v1/responses`` and ``/v1/chat/completions`` from one rule."""

    config: ScriptedModelConfig

    def setup(self) -> None:
        self._rule = _make_rule(self.config)

    async def responses(self, params: ResponsesCreateParams, call: Call) -> dict[str, Any]:
        request = ScriptedRequest(params.input, params.instructions, params.tools, _sample(params.metadata, call))
        return to_response(self.config.model, params, request, self._reply(request))

    async def chat_completions(self, params: ChatCompletionCreateParams, call: Call) -> dict[str, Any]:
        sample = str(params.seed) if params.seed is not None else _sample(params.metadata, call)
        request = ScriptedRequest(chat_conversation(params), None, chat_tools(params.tools), sample)
        return to_completion(self.config.model, request, self._reply(request))

    def _reply(self, request: ScriptedRequest) -> ScriptedReply:
        try:
            return self._rule.reply(request)
        except UnscriptedRequestError as error:
            raise HTTPError(422, str(error)) from None


def _sample(metadata: dict[str, str] | None, call: Call) -> str | None:
    """What tells repeats of one prompt apart: the seed that the driver wrote into the request, else the rollout that the path names.

    Materialized rows refuse seeds (contract-data 1.4), but their environment server always calls under ``/ng-rollout/<capture key>``.
    """
    text = (metadata or {}).get("extra_body")
    if text is not None:
        try:
            extra = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise HTTPError(422, f"metadata.extra_body is not JSON: {error}") from None
        if isinstance(extra, dict) and extra.get("seed") is not None:
            return f"seed {orjson.dumps(extra['seed']).decode()}"
    return None if call.rollout is None else f"rollout {call.rollout}"


def _make_rule(config: ScriptedModelConfig) -> Rule:
    match config.rule:
        case "answers":
            assert config.answers is not None
            return AnswersRule(Answers.load(config.answers), config.accuracy, config.seed, config.answer_template)
        case "constant":
            return ConstantRule(config.text or "")
        case "dialogues":
            assert config.dialogues is not None
            return DialoguesRule(Dialogues.load(config.dialogues))
        case "echo":
            return EchoRule()
        case "first_tool_call":
            return FirstToolCallRule(config.text or "")
        case "turns":
            return TurnsRule(tuple(turn.reply() for turn in config.turns))


if __name__ == "__main__":
    ScriptedModelServer.run_webserver()
