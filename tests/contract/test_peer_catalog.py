"""What ``gym list`` finds in NeMo Gym's own wheel (contract-config 2.4)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from gym_compose.cli import catalog


def test_the_catalog_of_the_wheel(peer_root: Path) -> None:
    found = catalog.workloads([peer_root])
    assert Counter(workload.kind for workload in found) == {"environment": 201, "benchmark": 184}
    assert all(workload.domain for workload in found)


def test_components_of_the_wheel(peer_root: Path) -> None:
    assert len(catalog.resources_servers([peer_root])) == 216
    assert {"openai_model", "vllm_model"} <= catalog.models([peer_root]).keys()
    agents = catalog.agents([peer_root])
    assert not agents["simple_agent"].self_contained
    assert agents["claude_code_agent"].self_contained
