"""The manifest document: keys, profiles, its place, its rewriting (contract-data 3.9)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gym_compose.config import ConfigError
from gym_compose.config.errors import ManifestError
from gym_compose.tasks.manifest import KINDS, MIRRORED, NEEDED, Manifest, load_manifest

DATASET = {"name": "demo", "type": "benchmark", "jsonl_fpath": "d.jsonl", "prepare_script": "prepare.py"}
WHOLE: dict[str, Any] = {
    "name": "demo",
    "version": "0.1.0",
    "kind": "benchmark",
    "integration_profile": "custom-gym-verifier",
    "domain": "math",
    "description": "d",
    "modality": "text",
    "authors": ["a"],
    "reward": {"range": [0, 1], "higher_is_better": True},
    "resources_server": "demo",
    "agent_server": "simple_agent",
    "datasets": [DATASET],
    "model_server": "policy_model",
    "canonical_split": "benchmark",
    "standard_prompt_config": "p.yaml",
}
ENVIRONMENT = {**WHOLE, "kind": "environment"}
OPTIONAL = {"model_server", "canonical_split", "standard_prompt_config"}


def changed(base: Mapping[str, Any] = WHOLE, **keys: Any) -> dict[str, Any]:
    """``...`` takes a key away."""
    document = {**copy.deepcopy(dict(base)), **keys}
    return {key: value for key, value in document.items() if value is not ...}


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(document: Any, place: str = "benchmarks/demo") -> Path:
        path = tmp_path / place / "manifest.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document if isinstance(document, str) else yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"licensing": "apache-2.0"},
        {"licensing": "MIT OR Apache-2.0"},
        {"licensing": "internal"},
        {"determinism": "seeded"},
        {"lifecycle": "deprecated"},
        {"experimental": False},
        {"session_model": "step", "state": "per_session", "sandbox": "docker"},
        {"reward": {"range": [1, 1], "higher_is_better": False}},
        {"prompt_source": "prepared", "standard_prompt_config": ...},
        {"prompt_source": "agent"},
        {"adopted_from": {"source": "git@host:repo", "ref": "main", "reconciled": "2025-01-02"}},
        {"integration_profile": "external-agent-loop", "model_server": ..., "resources_server": None},
        {"integration_profile": "external-rollout-driver", "rollout_driver": "a.b:run", "model_server": ...},
        {"kind": "environment", "canonical_split": ..., "standard_prompt_config": ..., "datasets": [{**DATASET, "type": "example"}]},
    ],
)
def test_a_manifest_that_is_right(write: Any, keys: dict[str, Any]) -> None:
    assert load_manifest(write(changed(**keys))).manifest.name == "demo"


@pytest.mark.parametrize("key", [key for key in WHOLE if key not in OPTIONAL])
def test_a_key_that_must_be_there(write: Any, key: str) -> None:
    document = {name: value for name, value in WHOLE.items() if name != key}
    with pytest.raises(ManifestError, match=rf"{key}: Field required"):
        load_manifest(write(document))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"grading_mod": "x"}, r"grading_mod: Extra inputs.* Did you mean 'grading_mode'\?"),
        ({"domain": " math "}, "domain"),
        ({"version": 1.0}, "version"),
        ({"description": "  "}, "description"),
        ({"kind": "suite"}, "kind"),
        ({"licensing": "Foo"}, "neither an SPDX license expression"),
        ({"domain": "bogus"}, "domain"),
        ({"authors": []}, "authors"),
        ({"authors": ["a", " a "]}, "an author is named twice"),
        ({"reward": {"range": [1, 0], "higher_is_better": True}}, "1.0 is not below 0.0"),
        ({"reward": {"range": [0, float("inf")], "higher_is_better": True}}, "finite"),
        ({"adopted_from": {"source": "nope", "ref": "a b", "reconciled": "x"}}, "adopted_from.ref"),
        ({"rollout_driver": "a:b"}, "external-rollout-driver only"),
        ({"integration_profile": "external-rollout-driver"}, "needs rollout_driver"),
        ({"integration_profile": "external-rollout-driver", "rollout_driver": "not a function"}, "rollout_driver"),
        ({"model_server": ...}, "needs model_server"),
        ({"resources_server": None}, "needs resources_server"),
        ({"integration_profile": "custom-gym-agent-loop", "model_server": None}, "needs model_server"),
        ({"canonical_split": ...}, "needs canonical_split"),
        ({"standard_prompt_config": ...}, "needs standard_prompt_config"),
        ({"prompt_source": "prepared"}, "no use where prompts are prepared"),
        ({"prompt_source": "agent", "datasets": [{**DATASET, "prompt_config": "p"}]}, "prompt_source template only"),
        ({"datasets": []}, "datasets"),
        ({"datasets": [DATASET, DATASET]}, "two datasets have one name"),
        ({"datasets": [{**DATASET, "type": "train"}]}, "needs a dataset of type benchmark"),
        ({"datasets": [{**DATASET, "prepare_script": None}]}, "datasets.0: a benchmark dataset needs a prepare_script"),
        ({"datasets": [{**DATASET, "num_repeats": 0}]}, "datasets.0.num_repeats"),
        ({"datasets": [{**DATASET, "license": "MIT"}]}, "datasets.0.license"),
    ],
)
def test_a_manifest_that_is_wrong(write: Any, keys: dict[str, Any], said: str) -> None:
    path = write(changed(**keys))
    with pytest.raises(ManifestError, match=said) as caught:
        load_manifest(path)
    assert isinstance(caught.value, ConfigError)
    assert caught.value.where == str(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [\n", r"manifest.yaml:2: it is not YAML"),
        ("- a\n", "a manifest is a mapping"),
        ("", "a manifest is a mapping"),
        ("a:\x00", "not YAML"),
    ],
)
def test_a_file_that_is_none(write: Any, text: str, said: str) -> None:
    with pytest.raises(ManifestError, match=said):
        load_manifest(write(text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="no such manifest"):
        load_manifest(tmp_path / "manifest.yaml")
    with pytest.raises(ManifestError, match="cannot be read: Is a directory"):
        load_manifest(tmp_path)


def test_the_config_is_found_beside_it_and_inside_the_tree(write: Any, tmp_path: Path) -> None:
    path = write(changed(config_path="../shared/config.yaml"))
    assert load_manifest(path).config == (tmp_path / "benchmarks/shared/config.yaml").resolve()
    for given in ("/etc/passwd", "../../config.yaml"):
        with pytest.raises(ManifestError, match="config_path"):
            _ = load_manifest(write(changed(config_path=given))).config
    alone = write(changed(config_path="../config.yaml"), "elsewhere")
    with pytest.raises(ManifestError, match="leads out of"):
        _ = load_manifest(alone).config


def test_a_symbolic_link_does_not_lead_out(write: Any, tmp_path: Path) -> None:
    path = write(WHOLE)
    (tmp_path / "config.yaml").write_text("{}")
    (path.parent / "config.yaml").symlink_to(tmp_path / "config.yaml")
    with pytest.raises(ManifestError, match="leads out of"):
        _ = load_manifest(path).config


def test_rewriting_changes_the_mirrored_keys_only_and_keeps_the_order(write: Any) -> None:
    path = write({"lifecycle": "active", **changed(grading_mode="strict", experimental=True)})
    path.chmod(0o640)
    found = load_manifest(path).mirroring({"grading_mode": None, "agent_server": "other", "resources_server": "demo2"})
    found.write()
    document = yaml.safe_load(path.read_text())
    assert document == {**WHOLE, "lifecycle": "active", "experimental": True, "agent_server": "other", "resources_server": "demo2"}
    assert next(iter(document)) == "lifecycle"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in path.parent.iterdir()] == ["manifest.yaml"]


def test_what_cannot_be_mirrored_leaves_the_file_alone(write: Any) -> None:
    path = write(WHOLE)
    before = path.read_bytes()
    with pytest.raises(ManifestError, match="needs model_server"):
        load_manifest(path).mirroring({"model_server": None})
    assert path.read_bytes() == before


def test_the_tables_name_keys_that_exist() -> None:
    assert set(MIRRORED) <= set(Manifest.model_fields)
    assert {key for keys in NEEDED.values() for key in keys} <= set(Manifest.model_fields)
    assert KINDS == ("environment", "benchmark")
