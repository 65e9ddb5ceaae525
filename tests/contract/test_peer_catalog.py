"""What ``gym list`` finds in NeMo Gym's own wheel (contract-config 2.4)."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import cast

import pytest

from gym_compose.cli import catalog, eval_list
from gym_compose.cli.console import Console
from gym_compose.cli.translate import Invocation, translate
from gym_compose.config import ConfigError
from gym_compose.tasks.validation import validate_manifest


def test_the_catalog_of_the_wheel(peer_root: Path) -> None:
    found = catalog.workloads([peer_root])
    assert Counter(workload.kind for workload in found) == {"environment": 201, "benchmark": 184}
    assert all(workload.domain for workload in found)


@pytest.mark.slow
def test_every_benchmark_of_the_wheel_can_be_listed_with_its_agent(
    peer_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a key, an endpoint or a variable of a run; none of them declares a taskset."""
    monkeypatch.setattr(eval_list, "component_roots", lambda _: (peer_root,))
    call = translate(["eval", "list", "--json"], cwd=tmp_path, environ={})
    assert isinstance(call, Invocation)
    console = Console(io.StringIO(), io.StringIO())
    assert eval_list.run(call, console) == 0
    rows = json.loads(cast("io.StringIO", console.stdout).getvalue())
    assert [row["name"] for row in rows] == [work.name for work in catalog.workloads([peer_root]) if work.kind == "benchmark"]
    assert all(row["agent_name"] and row["domain"] and row["num_repeats"] >= 1 and row["environment_server"] is None for row in rows)
    assert cast("io.StringIO", console.stderr).getvalue() == ""


def test_components_of_the_wheel(peer_root: Path) -> None:
    assert len(catalog.resources_servers([peer_root])) == 216
    assert {"openai_model", "vllm_model"} <= catalog.models([peer_root]).keys()
    agents = catalog.agents([peer_root])
    assert not agents["simple_agent"].self_contained
    assert agents["claude_code_agent"].self_contained


def test_every_manifest_of_the_wheel_is_true_of_its_config(peer_root: Path, tmp_path: Path) -> None:
    """What is wrong with them is data that the wheel does not ship and values that a user gives; NeMo Gym's validation says the same."""
    outcomes: Counter[str] = Counter()
    for manifest in sorted(peer_root.rglob("manifest.yaml")):
        outcomes[_outcome(manifest, peer_root, tmp_path)] += 1
    assert outcomes == {"valid": 2, "no data": 171, "ConfigMissingValuesError": 1}


def _outcome(manifest: Path, root: Path, cwd: Path) -> str:
    try:
        validate_manifest(manifest, cwd=cwd, environ={}, last=[root])
    except ConfigError as error:
        return "no data" if "is not on disk" in error.message else type(error).__name__
    return "valid"
