from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import httpx
import orjson
import pytest

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")

from pathlib import Path

DIRECTORY = "resources_servers/reasoning_gym"
EXAMPLES = [orjson.loads(line) for line in (Path(__file__).parents[1] / "data" / "example.jsonl").read_bytes().splitlines()]


@pytest.fixture
def reasoning(serve: Any) -> httpx.AsyncClient:
    client: httpx.AsyncClient = serve(DIRECTORY, "ReasoningGymResourcesServer", {"domain": "knowledge", "families": ["chain_sum"]})
    return client


def _answered(row: dict[str, Any], text: str) -> dict[str, Any]:
    message = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]}
    response = {
        "id": "r",
        "created_at": 0,
        "model": "m",
        "object": "response",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    return {**row, "response": {**response, "output": [message]}}


@pytest.mark.parametrize("row", EXAMPLES, ids=lambda row: row["metadata"]["source_dataset"])
async def test_the_reference_answer_of_every_example_is_right_and_a_mark_is_wrong(
    reasoning: httpx.AsyncClient, row: dict[str, Any]
) -> None:
    family = row["metadata"]["source_dataset"]
    right = (await reasoning.post("/verify", json=_answered(row, f"So <answer>{row['answer']}</answer>"))).json()
    assert list(right) == [
        "responses_create_params",
        "response",
        "reward",
        "mask_sample",
        "failure_kind",
        "failure_reason",
        "task_name",
        "score",
        "extracted_answer",
    ]
    assert (right["reward"], right["score"], right["task_name"], right["extracted_answer"]) == (1.0, 1.0, family, row["answer"])
    assert (await reasoning.post("/verify", json=_answered(row, "<answer>?</answer>"))).json()["reward"] == 0.0


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>1</answer> no, <answer>\n 2 \n</answer>", "2"),
        ("so \\boxed{ 3 }, or \\boxed{4}", "3"),
        ("<answer>5</answer> \\boxed{6}", "5"),
        ("  plain ", "plain"),
        ("", ""),
    ],
)
def test_extraction(load_app: Callable[[str], ModuleType], text: str, answer: str) -> None:
    assert load_app(DIRECTORY).extract_answer(text) == answer


async def test_a_family_that_does_not_exist_scores_nothing_and_is_logged(
    reasoning: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    row = {**EXAMPLES[0], "metadata": {"source_dataset": "chess"}}
    assert (await reasoning.post("/verify", json=_answered(row, "1"))).json()["reward"] == 0.0
    assert "no family 'chess'" in caplog.text


async def test_a_scorer_that_fails_scores_nothing_and_is_logged(reasoning: httpx.AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    row = {**EXAMPLES[0], "metadata": {"source_dataset": "prime_factorization", "factors": [2, 3]}}
    assert (await reasoning.post("/verify", json=_answered(row, "no number"))).json()["reward"] == 0.0
    assert "the scorer of prime_factorization failed" in caplog.text


async def test_metadata_must_name_the_family(reasoning: httpx.AsyncClient) -> None:
    answer = await reasoning.post("/verify", json=_answered({**EXAMPLES[0], "metadata": {}}, "1"))
    assert answer.status_code == 500
    assert "metadata.source_dataset" in answer.json()


@pytest.mark.parametrize("field", ["question", "answer", "metadata"])
async def test_the_rows_fields_are_required(reasoning: httpx.AsyncClient, field: str) -> None:
    body = _answered(EXAMPLES[0], "1")
    del body[field]
    answer = await reasoning.post("/verify", json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["body", field]
