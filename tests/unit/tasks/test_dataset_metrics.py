"""Figures of rows: those of a metrics file of NeMo Gym, and what is no row (contract-data 3.4)."""

from __future__ import annotations

from typing import Any

import pytest

from gym_compose.tasks.dataset_metrics import BadRowError, DatasetMetrics
from gym_compose.tasks.running_statistics import CategoryCounts, NumberStatistics
from gym_compose.tasks.text_tally import TextTally

ROW = {
    "responses_create_params": {
        "input": [{"role": "user", "content": "one two"}, {"role": "assistant", "content": "x"}, {"role": "user", "content": "three"}],
        "temperature": 0.5,
        "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": True}],
    },
    "flag": True,
    "level": 3,
    "tag": "t",
    "scores": [1, 2, "x", None, {"y": 1}],
    "nested": {"z": 1},
    "nothing": None,
    "_ng_task_index": 4,
}


def document(*rows: dict[str, Any], times: int = 1, **options: Any) -> dict[str, Any]:
    with TextTally() as texts:
        metrics = DatasetMetrics(texts, 0)
        for row in rows:
            metrics.observe(row, times, **options)
        return metrics.document(texts.summaries()[0].get(0, {}))


def average(figure: dict[str, Any]) -> tuple[int, float]:
    return figure["Total # non-null values"], figure["Average"]


def test_the_figures_of_a_row() -> None:
    made = document(ROW, times=2)
    assert made["Number of examples"] == 2
    assert average(made["Number of tools"]) == (2, 1.0)
    assert average(made["Number of turns"]) == (2, 2.0)
    assert average(made["Temperature"]) == (2, 0.5)
    assert average(made["Json-dumped number of words (proxy for token count)"]) == (2, 25.0)
    assert average(made["flag"]) == (2, 1.0)
    assert made["tag"] == {"unique_count": 1, "total_count": 2}
    assert average(made["scores"]) == (4, 1.5)
    assert (made["scores"]["unique_count"], made["scores"]["total_count"]) == (1, 2)
    assert not {"nested", "nothing", "responses_create_params", "_ng_task_index", "Number of tasks", "Tasksets"} & set(made)


def test_a_text_is_one_turn_and_nothing_is_no_figure() -> None:
    made = document({"responses_create_params": {"input": "x"}})
    assert average(made["Number of turns"]) == (1, 1.0)
    assert made["Number of tools"] == {"Total # non-null values": 0, "Average": 0.0, "Min": 0.0, "Max": 0.0, "Standard deviation": 0.0}


def test_materialized_rows_have_figures_of_their_own() -> None:
    made = document({"task_id": {"taskset": "ts", "task_id": "1"}, "task_input": {"q": "a b"}, "other": 1})
    assert (made["Number of examples"], made["Number of tasks"]) == (1, 1)
    assert average(made["Json-dumped task-input words (proxy for token count)"]) == (1, 3.0)
    assert made["Tasksets"] == {"counts": {"ts": 1}, "unique_count": 1, "total_count": 1}
    assert "other" not in made


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({}, "responses_create_params: the row has none"),
        ({"responses_create_params": []}, "responses_create_params: "),
        ({"responses_create_params": {}}, "responses_create_params.input: Field required"),
        ({"responses_create_params": {"input": "x", "new": 1}}, "responses_create_params.new: "),
        ({"task_id": {"taskset": "t", "task_id": 5}, "task_input": {}}, "task_id.task_id: "),
        ({"task_id": {"taskset": "t", "task_id": "5"}, "task_input": []}, "task_input: an object"),
    ],
)
def test_a_row_that_cannot_be_sent_changes_no_figure(row: dict[str, Any], text: str) -> None:
    with TextTally() as texts:
        metrics = DatasetMetrics(texts, 0)
        with pytest.raises(BadRowError) as raised:
            metrics.observe({**row, "n": 1})
        assert str(raised.value).startswith(text)
        assert metrics.document({})["Number of examples"] == 0
        assert metrics.numbers == {}


def test_a_taskset_needs_no_params() -> None:
    made = document({"level": 1}, needs_params=False)
    assert (made["Number of examples"], average(made["level"])) == (1, (1, 1.0))


def test_figures_of_datasets_add_up() -> None:
    with TextTally() as texts:
        one, two, total = (DatasetMetrics(texts, number) for number in range(3))
        one.observe({**ROW, "tag": "a"})
        two.observe({**ROW, "tag": "b", "level": 5})
        for metrics in (one, two):
            metrics.hook["Kind"] = CategoryCounts()
            metrics.hook["Kind"].observe("k")
            total.add(metrics)
        made = total.document(texts.summaries()[1])
        assert (made["Number of examples"], average(made["level"])) == (2, (2, 4.0))
        assert (made["tag"]["unique_count"], made["Kind"]["total_count"]) == (2, 2)
        two.hook["Kind"] = NumberStatistics()
        with pytest.raises(ValueError, match="'Kind' is a number in one dataset"):
            total.add(two)
