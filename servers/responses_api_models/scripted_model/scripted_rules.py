"""What a scripted model says: one rule for each ``rule`` of the config. Pure: a reply depends on the request and on nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson
from scripted_answers import Answers
from scripted_prompt import Canonical, canonical, fingerprint, has_tool_output, last_user_text, model_turns, opening, quote

_WRONG_ANSWERS = ("?", "~", "#", "no idea")
"""Tried in this order: the first that neither holds the reference answer nor stands in it."""


class UnscriptedRequestError(ValueError):
    """The script has no reply for this request; becomes a 422 with this text."""


@dataclass(frozen=True)
class ScriptedRequest:
    """What a rule may look at. ``sample`` tells repeats of one prompt apart (see ``app.py``); None: there is only one."""

    input: object
    instructions: str | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    sample: str | None = None

    @property
    def prompt(self) -> Canonical:
        return canonical(self.input, self.instructions)


@dataclass(frozen=True)
class ScriptedCall:
    """A call of a function tool; ``arguments`` is JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True)
class ScriptedReply:
    """One turn of the model. ``outcome`` goes into the response's metadata."""

    text: str | None = None
    calls: tuple[ScriptedCall, ...] = ()
    outcome: str | None = None


class Rule(Protocol):
    """A reply for a request. Raises UnscriptedRequestError."""

    def reply(self, request: ScriptedRequest) -> ScriptedReply: ...


@dataclass(frozen=True)
class ConstantRule:
    """Always the same text."""

    text: str

    def reply(self, request: ScriptedRequest) -> ScriptedReply:  # noqa: ARG002 - the protocol's signature
        return ScriptedReply(text=self.text)


@dataclass(frozen=True)
class EchoRule:
    """The text of the last user message."""

    def reply(self, request: ScriptedRequest) -> ScriptedReply:
        return ScriptedReply(text=last_user_text(request.prompt))


@dataclass(frozen=True)
class FirstToolCallRule:
    """Calls the first function tool once, with arguments made from its schema, then says ``text``."""

    text: str

    def reply(self, request: ScriptedRequest) -> ScriptedReply:
        tool = next((tool for tool in request.tools if tool.get("type") == "function"), None)
        if tool is None or has_tool_output(request.input):
            return ScriptedReply(text=self.text)
        arguments = orjson.dumps(example_value(tool.get("parameters") or {"type": "object"})).decode()
        return ScriptedReply(calls=(ScriptedCall(name=str(tool.get("name")), arguments=arguments),))


@dataclass(frozen=True)
class TurnsRule:
    """The n-th turn of the conversation gets the n-th reply of the script."""

    turns: tuple[ScriptedReply, ...]

    def reply(self, request: ScriptedRequest) -> ScriptedReply:
        return _turn_of(self.turns, request)


class Scripts(Protocol):
    """Scripts by how a conversation begins."""

    def __len__(self) -> int: ...

    def find(self, prompt: Canonical) -> tuple[ScriptedReply, ...] | None: ...


@dataclass(frozen=True)
class DialoguesRule:
    """As ``TurnsRule``, with a script of its own for each conversation."""

    scripts: Scripts

    def reply(self, request: ScriptedRequest) -> ScriptedReply:
        script = self.scripts.find(request.prompt)
        if script is None:
            raise UnscriptedRequestError(
                f"the dialogues file ({len(self.scripts)} conversations) has none that begins with {quote(opening(request.prompt))}"
            )
        return _turn_of(script, request)


def _turn_of(script: tuple[ScriptedReply, ...], request: ScriptedRequest) -> ScriptedReply:
    number = model_turns(request.input)
    if number >= len(script):
        raise UnscriptedRequestError(f"the script has {len(script)} turns and the conversation asks for turn {number + 1}")
    return script[number]


@dataclass(frozen=True)
class AnswersRule:
    """The reference answer in a share ``accuracy`` of the samples, else an answer that is wrong for certain."""

    answers: Answers
    accuracy: float
    seed: int
    template: str = "{answer}"
    _cut: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_cut", round(self.accuracy * 2**64))

    def reply(self, request: ScriptedRequest) -> ScriptedReply:
        prompt = request.prompt
        reference = self.answers.find(prompt)
        if reference is None:
            raise UnscriptedRequestError(f"the answers file ({len(self.answers)} prompts) has no answer for {quote(prompt)}")
        right = draw(self.seed, prompt, request.sample) < self._cut
        answer = reference if right else wrong_answer(reference)
        return ScriptedReply(text=self.template.replace("{answer}", answer), outcome="right" if right else "wrong")


def draw(seed: int, prompt: Canonical, sample: str | None) -> int:
    """A number of 64 bits, uniform over prompts and samples: the head of a SHA-256."""
    material = orjson.dumps([seed, fingerprint(prompt).hex(), sample])
    return int.from_bytes(hashlib.sha256(material).digest()[:8], "big")


def wrong_answer(reference: str) -> str:
    """A text that a verifier cannot take for ``reference``.

    Verifiers of the field give part of the reward when the reference stands somewhere in the answer, so the text must not hold it.
    """
    for candidate in _WRONG_ANSWERS:
        if candidate not in reference and reference not in candidate:
            return candidate
    return "" if reference else "wrong"


def example_value(schema: Mapping[str, Any]) -> Any:
    """The plainest value that fits a JSON schema as tools have it (type, enum, const, properties, items, anyOf)."""
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for union in ("anyOf", "oneOf"):
        if schema.get(union):
            return example_value(schema[union][0])
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((name for name in kind if name != "null"), "null")
    match kind:
        case "object":
            return {name: example_value(part) for name, part in (schema.get("properties") or {}).items()}
        case "array":
            return [example_value(schema.get("items") or {})] * int(schema.get("minItems") or 0)
        case "integer":
            return int(schema.get("minimum", 1))
        case "number":
            return float(schema.get("minimum", 1))
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return "x"
