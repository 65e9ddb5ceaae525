"""Scripts of whole conversations: what the model says in each of its turns, in the config itself or in a file by how one begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from scripted_prompt import Canonical, canonical, fingerprint, opening
from scripted_rules import ScriptedCall, ScriptedReply

from gym_compose.wire.errors import InvalidInputError


class CallConfig(BaseModel):
    """A tool call of a script; ``arguments`` is an object, or the text itself (to script arguments that are no JSON)."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1)
    arguments: dict[str, Any] | str = Field(default_factory=dict)


class TurnConfig(BaseModel):
    """A turn of a script: a text, calls, both, or nothing (a model that falls silent)."""

    model_config = ConfigDict(extra="forbid")

    text: str | None = None
    calls: list[CallConfig] = Field(default_factory=list)

    def reply(self) -> ScriptedReply:
        calls = tuple(
            ScriptedCall(call.name, call.arguments if isinstance(call.arguments, str) else orjson.dumps(call.arguments).decode())
            for call in self.calls
        )
        return ScriptedReply(text=self.text, calls=calls)


class DialoguesConfig(BaseModel):
    """Where the scripts stand: one JSON document a line, ``{"prompt": …, "turns": […]}``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    jsonl: str = Field(min_length=1)


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid")

    prompt: str | list[dict[str, Any]]
    turns: list[TurnConfig] = Field(min_length=1)


class Dialogues:
    """Scripts by the hash of how their conversations begin."""

    def __init__(self, scripts: Mapping[bytes, tuple[ScriptedReply, ...]]) -> None:
        self._scripts = dict(scripts)

    def __len__(self) -> int:
        return len(self._scripts)

    def find(self, prompt: Canonical) -> tuple[ScriptedReply, ...] | None:
        """The script of the conversation that ``prompt`` belongs to, however far it has gone; None for one that the file does not hold."""
        return self._scripts.get(fingerprint(opening(prompt)))

    @classmethod
    def load(cls, config: DialoguesConfig) -> Dialogues:
        """Read the file. Raises InvalidInputError naming file, line and field: a file that cannot be read, a line that is no script, two
        scripts for one beginning."""
        path = Path(config.jsonl)
        try:
            with path.open("rb") as file:
                return cls.parse(file, config.jsonl)
        except OSError as error:
            raise InvalidInputError(
                f"the dialogues file cannot be read: {error.strerror}", where=str(path), hint="Correct dialogues.jsonl."
            ) from None

    @classmethod
    def parse(cls, lines: Iterable[bytes], name: str) -> Dialogues:
        """The scripts of ``lines``; blank lines are skipped. Errors as ``load``."""
        scripts: dict[bytes, tuple[ScriptedReply, ...]] = {}
        first_line: dict[bytes, int] = {}
        for number, text in enumerate(lines, start=1):
            if not text.strip():
                continue
            where = f"{name}:{number}"
            try:
                line = _Line.model_validate_json(text)
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                place = ".".join(str(part) for part in first["loc"])
                raise InvalidInputError(f"the line is no script: {place}: {first['msg']}", where=where) from None
            key = fingerprint(opening(canonical(line.prompt)))
            if key in scripts:
                raise InvalidInputError(f"the conversation of line {first_line[key]} begins in the same way", where=where)
            scripts[key] = tuple(turn.reply() for turn in line.turns)
            first_line[key] = number
        if not scripts:
            raise InvalidInputError("the dialogues file holds no script", where=name)
        return cls(scripts)
