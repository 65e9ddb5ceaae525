"""Datasets that are not on disk and can be fetched: from where, and to which file (contract-data 3.1, 3.4 step 2)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from gym_compose.tasks.datasets import DeclaredDataset
from gym_compose.tasks.errors import DownloadError

DataSource = Literal["gitlab", "huggingface"]


class Download(BaseModel):
    """A file or a split of a Hugging Face dataset repository, and where it goes. What ``fetcher`` is asked on stdin."""

    label: str
    repo_id: str
    artifact: str | None
    """Of the repository's files; None: the split ``split`` of the data set, as one JSON object a line."""
    split: str
    target: str


class DownloadAnswer(BaseModel):
    """What ``fetcher`` answers: nothing, or what went wrong."""

    error: str | None = None


def download_of(dataset: DeclaredDataset, data_source: DataSource, cwd: Path) -> Download | None:
    """How a dataset without a file is fetched; None when its ``prepare_script`` makes the file.

    ``data_source`` decides between two older ``*_identifier`` keys. A relative path is one below ``cwd``. Raises DownloadError when there
    is no source, and for GitLab, with the command that fetches it.
    """
    if dataset.prepare_script is not None:
        return None
    sources = _sources(dataset.declared)
    if not sources:
        raise DownloadError(
            f"{dataset.label} is not on disk and has no source: {dataset.jsonl_fpath}",
            hint="Put the file there, or give the dataset a `source:`.",
        )
    kind = data_source if len(sources) > 1 else next(iter(sources))
    fields = sources[kind]
    if kind == "gitlab":
        words = ["--storage", "gitlab", "--name", fields["dataset_name"], "--revision", fields["version"]]
        words += ["--artifact", fields["artifact_fpath"], "-o", dataset.jsonl_fpath]
        raise DownloadError(
            f"{dataset.label} is not on disk, and GitLab is not fetched from here: {dataset.jsonl_fpath}",
            hint=f"Where NeMo Gym is installed: gym dataset download {shlex.join(map(str, words))}",
        )
    artifact = fields.get("artifact_fpath")
    return Download(
        label=dataset.label,
        repo_id=str(fields["repo_id"]),
        artifact=None if artifact is None else str(artifact),
        split=dataset.type,
        target=str(cwd / dataset.jsonl_fpath),
    )


def downloads(datasets: Sequence[DeclaredDataset], data_source: DataSource, cwd: Path) -> tuple[Download, ...]:
    """How each of ``datasets`` is fetched; those with a ``prepare_script`` are left out."""
    found = (download_of(dataset, data_source, cwd) for dataset in datasets)
    return tuple(download for download in found if download is not None)


def _sources(entry: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    source = entry.get("source")
    if isinstance(source, Mapping):
        return {str(source.get("type")): source}
    given = {kind: entry.get(f"{kind}_identifier") for kind in ("gitlab", "huggingface")}
    return {kind: fields for kind, fields in given.items() if isinstance(fields, Mapping)}
