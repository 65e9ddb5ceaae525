from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from gym_compose.compiler import read_assets, read_host_files, wanted_files
from gym_compose.config.model import ServerManifest
from gym_compose.wire.errors import PrerequisiteError


def test_what_is_wanted_is_manifest_files_mounts_and_datasets(four: Any, make_config: Any, make_sources: Any) -> None:
    four["math"]["resources_servers"]["math"].update(
        answers={"jsonl": "a.jsonl", "more": ["b", None, ""]}, datasets=[{"name": "d", "jsonl_fpath": "d.jsonl"}, "odd"]
    )
    four["compose"] = {"servers": {"math": {"mounts": [{"source": "m", "target": "/m"}]}}}
    config = make_config(four)
    manifest = ServerManifest(files=("answers.jsonl", "answers.more", "gone"))
    assert wanted_files(config, make_sources(config, math={"manifest": manifest})) == ("a.jsonl", "b", "d.jsonl", "m")
    assert wanted_files(config, {}) == ("d.jsonl", "m")


def test_files_are_found_in_the_first_root_that_has_them(tmp_path: Path) -> None:
    for root in ("one", "two"):
        (tmp_path / root / "dir").mkdir(parents=True)
    (tmp_path / "two" / "a").write_text("second")
    (tmp_path / "one" / "b").write_text("first")
    (tmp_path / "two" / "b").write_text("hidden")
    found = read_host_files(["a", "b", "dir", "gone", str(tmp_path / "two" / "a")], [tmp_path / "one", tmp_path / "two"])
    assert found["a"].path == str(tmp_path / "two" / "a")
    assert found["b"].sha256 == hashlib.sha256(b"first").hexdigest()
    assert (found["dir"].path, found["dir"].sha256) == (str(tmp_path / "one" / "dir"), None)
    assert found[str(tmp_path / "two" / "a")] == found["a"]
    assert "gone" not in found


def test_assets_are_texts_by_path_without_the_example(tmp_path: Path) -> None:
    for path in ("images/a/Dockerfile", "compose/x.yaml", "compose/example/compose.yaml", "images/__pycache__/x.pyc"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    assert read_assets(tmp_path) == {"images/a/Dockerfile": "images/a/Dockerfile", "compose/x.yaml": "compose/x.yaml"}
    (tmp_path / "images/a/bad").write_bytes(b"\xff")
    with pytest.raises(PrerequisiteError, match="bad"):
        read_assets(tmp_path)
