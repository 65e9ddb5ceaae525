"""Where a missing dataset is fetched from (contract-data 3.1, 3.4 step 2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gym_compose.tasks.datasets import DeclaredDataset, declared_datasets
from gym_compose.tasks.download import downloads
from gym_compose.tasks.errors import DownloadError

HF = {"repo_id": "owner/set", "artifact_fpath": "train.jsonl"}
GITLAB = {"dataset_name": "my set", "version": "0.1", "artifact_fpath": "t.jsonl"}


def datasets(**fields: Any) -> tuple[DeclaredDataset, ...]:
    entry = {"name": "d", "type": "train", "jsonl_fpath": "data/d.jsonl", **fields}
    return declared_datasets({"rs": {"resources_servers": {"x": {"datasets": [entry]}}}})


@pytest.mark.parametrize("fields", [{"source": {"type": "huggingface", **HF}}, {"huggingface_identifier": HF}])
def test_a_file_of_a_repository_goes_where_the_dataset_says(tmp_path: Path, fields: dict[str, Any]) -> None:
    [found] = downloads(datasets(**fields), "huggingface", tmp_path)
    assert (found.repo_id, found.artifact, found.target) == ("owner/set", "train.jsonl", str(tmp_path / "data/d.jsonl"))


def test_without_a_file_it_is_the_split(tmp_path: Path) -> None:
    [found] = downloads(datasets(huggingface_identifier={"repo_id": "o/s"}), "huggingface", tmp_path)
    assert (found.artifact, found.split) == (None, "train")


def test_of_two_sources_the_key_decides(tmp_path: Path) -> None:
    both = datasets(huggingface_identifier=HF, gitlab_identifier=GITLAB)
    assert len(downloads(both, "huggingface", tmp_path)) == 1
    with pytest.raises(DownloadError, match="GitLab"):
        downloads(both, "gitlab", tmp_path)


def test_gitlab_is_left_to_the_command_that_can(tmp_path: Path) -> None:
    with pytest.raises(DownloadError) as raised:
        downloads(datasets(source={"type": "gitlab", **GITLAB}), "huggingface", tmp_path)
    assert "gym dataset download --storage gitlab --name 'my set' --revision 0.1 --artifact t.jsonl -o data/d.jsonl" in str(raised.value)


def test_no_source_at_all(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"dataset 'd' \(train\) of rs is not on disk and has no source: data/d.jsonl"):
        downloads(datasets(), "huggingface", tmp_path)


def test_what_a_script_makes_is_not_fetched(tmp_path: Path) -> None:
    assert downloads(datasets(prepare_script="p.py"), "huggingface", tmp_path) == ()
