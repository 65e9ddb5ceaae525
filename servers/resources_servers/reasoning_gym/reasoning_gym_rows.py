"""Rows made from entries of reasoning-gym, in the two forms of the field (contract-data 1.3), and the answers of a scripted model.

A flat row is what the peer's dataset of this server holds: ``responses_create_params``, ``question``, ``answer``, ``metadata``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from reasoning_gym_families import Families

from gym_compose.wire.errors import InvalidInputError

INSTRUCTION = "Work the problem out, then put the final answer, and nothing else, between <answer> and </answer>."
_SPARE_ENTRIES = 20
"""Entries that are tried for each task that is wanted, before a family counts as exhausted."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One entry of a family. ``entry`` is the package's: question, answer, metadata."""

    family: str
    entry: Json
    reference_scores: bool
    """Whether the family's scorer gives its own reference answer 1.0; some families judge what cannot be written down once."""

    @property
    def question(self) -> str:
        return str(self.entry["question"])

    @property
    def input(self) -> list[Json]:
        return [{"role": "developer", "content": INSTRUCTION}, {"role": "user", "content": self.question}]

    @property
    def task_id(self) -> str:
        """Made of the question, so it stays when a dataset grows, shrinks or is made with another seed."""
        return f"{self.family}-{hashlib.sha256(self.question.encode()).hexdigest()[:16]}"

    def flat_row(self) -> Json:
        return {"responses_create_params": {"input": self.input}, **self._data}

    def materialized_row(self) -> Json:
        """The taskset is the family."""
        return {
            "task_id": {"taskset": self.family, "task_id": self.task_id},
            "task_input": {"responses_create_params": {"input": self.input}, "task_data": self._data},
        }

    def answer_row(self) -> Json:
        return {"prompt": self.input, "answer": self.entry["answer"]}

    @property
    def _data(self) -> Json:
        return {"question": self.question, "answer": self.entry["answer"], "metadata": self.entry["metadata"]}


def make_tasks(families: Families, family: str, size: int, seed: int) -> Iterator[Task]:
    """``size`` tasks with questions of their own. Equal arguments give equal tasks.

    Raises UnknownFamilyError; InvalidInputError when the family has too few different questions.
    """
    limit = size * _SPARE_ENTRIES
    dataset = families.create(family, size=limit, seed=seed)
    questions: set[str] = set()
    for index in range(limit):
        if len(questions) == size:
            return
        entry = dataset[index]
        if entry["question"] in questions:
            continue
        questions.add(entry["question"])
        answer = entry["answer"]
        scores = isinstance(answer, str) and families.score(family, answer, entry) == 1.0
        yield Task(family=family, entry=entry, reference_scores=scores)
    if len(questions) < size:
        raise InvalidInputError(
            f"{family} has {len(questions)} different questions among its first {limit} entries, {size} were asked for",
            where=f"--family {family} --seed {seed}",
            hint="Ask for fewer with --size.",
        )


def to_jsonl(rows: Iterator[Json]) -> bytes:
    """One JSON document a line, keys in the order of the rows."""
    options = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    return b"".join(orjson.dumps(row, option=options) for row in rows)
