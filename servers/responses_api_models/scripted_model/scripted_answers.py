"""The answers file: one JSON document a line, a prompt and its reference answer under configured keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field
from scripted_prompt import Canonical, canonical, fingerprint

from gym_compose.wire.errors import InvalidInputError


class AnswersConfig(BaseModel):
    """Where the reference answers stand. Keys may be dotted: ``task_input.task_data.answer``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    jsonl: str = Field(min_length=1)
    prompt_key: str = Field(default="prompt", min_length=1)
    answer_key: str = Field(default="answer", min_length=1)


class Answers:
    """Reference answers by the hash of the canonical prompt; 32 bytes and the answer a prompt."""

    def __init__(self, answers: Mapping[bytes, str]) -> None:
        self._answers = dict(answers)

    def __len__(self) -> int:
        return len(self._answers)

    def find(self, prompt: Canonical) -> str | None:
        """The reference answer, or None for a prompt that the file does not hold."""
        return self._answers.get(fingerprint(prompt))

    @classmethod
    def load(cls, config: AnswersConfig) -> Answers:
        """Read the file. Raises InvalidInputError naming file, line and key: a file that cannot be read, a line that is no object,
        a key that is missing or of a wrong type, two answers for one prompt."""
        path = Path(config.jsonl)
        try:
            with path.open("rb") as file:
                return cls.parse(file, config)
        except OSError as error:
            raise InvalidInputError(
                f"the answers file cannot be read: {error.strerror}",
                where=str(path),
                hint="Make it with prepare.py of the resources server, or correct answers.jsonl.",
            ) from None

    @classmethod
    def parse(cls, lines: Iterable[bytes], config: AnswersConfig) -> Answers:
        """The answers of ``lines``; blank lines are skipped. Errors as ``load``."""
        answers: dict[bytes, str] = {}
        first_line: dict[bytes, int] = {}
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            where = f"{config.jsonl}:{number}"
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise InvalidInputError(f"the line is not JSON: {error}", where=where) from None
            prompt = _lookup(row, config.prompt_key, where)
            if not isinstance(prompt, (str, list)):
                raise InvalidInputError(f"{config.prompt_key!r} is neither a string nor a list of messages", where=where)
            answer = _lookup(row, config.answer_key, where)
            if not isinstance(answer, str):
                raise InvalidInputError(f"{config.answer_key!r} is not a string", where=where)
            key = fingerprint(canonical(prompt))
            if answers.setdefault(key, answer) != answer:
                raise InvalidInputError(f"the prompt of line {first_line[key]} comes again with another answer", where=where)
            first_line.setdefault(key, number)
        if not answers:
            raise InvalidInputError("the answers file holds no answer", where=config.jsonl)
        return cls(answers)


def _lookup(row: Any, dotted: str, where: str) -> Any:
    value = row
    for part in dotted.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise InvalidInputError(f"the line has no {dotted!r}", where=where, hint="Set answers.prompt_key and answers.answer_key.")
        value = value[part]
    return value
