"""Metrics files: the dataset's own keys, and when two files agree (contract-data 3.4)."""

from __future__ import annotations

from typing import Any

import pytest

from gym_compose.tasks.datasets import declared_datasets
from gym_compose.tasks.metrics_file import dataset_block, differences


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, 0),
        ({"a": 1, "b": 2}, {"a": 1}, 1),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [2, 1]}}, 0),
        ([1, 1, 2], [1, 2, 2], 1),
        ([1], [1, 1], 1),
        ([{"x": 1.0}], [{"x": 1.001}], 0),
        (1.0, 1.005, 0),
        (1.0, 1.006, 1),
        (0.5, 0.5004, 0),
        (0.5, 0.5006, 1),
        (1, 1.0, 0),
        (2, 2.001, 1),
        (None, None, 0),
        ("a", "b", 1),
        ({"a": 1}, [1], 1),
    ],
)
def test_what_differs(old: Any, new: Any, count: int) -> None:
    assert len(differences(old, new)) == count


def test_a_difference_says_where_and_what() -> None:
    assert differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}) == ["a.b: 1 before, 3 now", "a.c: 2 before, not there now"]


def block(entry: dict[str, Any], *, preparation: bool = False) -> dict[str, Any]:
    [dataset] = declared_datasets({"rs": {"resources_servers": {"x": {"datasets": [{"name": "n", "jsonl_fpath": "f", **entry}]}}}})
    return dataset_block(dataset, preparation=preparation)


def test_the_keys_of_a_dataset() -> None:
    assert block({"type": "train", "license": "MIT", "taskset": "t", "agent": "a", "prepare_script": "p.py", "num_repeats": 3}) == {
        "name": "n",
        "type": "train",
        "jsonl_fpath": "f",
        "num_repeats": 3,
        "source": None,
        "gitlab_identifier": None,
        "huggingface_identifier": None,
        "license": "MIT",
    }
    prepared = block({"type": "train", "prepare_script": "p.py", "prepare_dependencies": ["x"]}, preparation=True)
    assert (prepared["prepare_script"], prepared["prepare_dependencies"]) == ("p.py", ["x"])


def test_the_keys_of_a_benchmark() -> None:
    assert block({"type": "benchmark", "prepare_script": "p.py", "prompt_config": "q.yaml", "agent": "a"}) == {
        "name": "n",
        "type": "benchmark",
        "jsonl_fpath": "f",
        "prepare_script": "p.py",
        "prompt_config": "q.yaml",
        "num_repeats": 1,
        "prepare_dependencies": [],
    }


HF, GL = {"repo_id": "o/r"}, {"dataset_name": "d", "version": "1", "artifact_fpath": "a"}


@pytest.mark.parametrize(
    ("entry", "source", "gitlab", "huggingface"),
    [
        ({"source": {"type": "gitlab", **GL}}, {"type": "gitlab", **GL}, GL, None),
        ({"gitlab_identifier": GL}, {"type": "gitlab", **GL}, GL, None),
        ({"huggingface_identifier": HF}, {"type": "huggingface", **HF, "artifact_fpath": None}, None, {**HF, "artifact_fpath": None}),
        ({"huggingface_identifier": HF, "gitlab_identifier": GL}, None, GL, {**HF, "artifact_fpath": None}),
    ],
)
def test_each_form_of_a_source_is_made_of_the_other(entry: dict[str, Any], source: Any, gitlab: Any, huggingface: Any) -> None:
    found = block({"type": "example", **entry})
    assert (found["source"], found["gitlab_identifier"], found["huggingface_identifier"]) == (source, gitlab, huggingface)
