"""The main job on one running Docker deployment: collect in every form, look from inside and outside."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from gym_compose.wire.deadline import Deadline

pytestmark = [pytest.mark.docker, pytest.mark.slow]
Rows = Callable[..., list[dict[str, Any]]]


def rewards(records: list[dict[str, Any]]) -> Counter[float]:
    return Counter(record["reward"] for record in records)


def test_materialized_rows_of_two_tasksets_are_verified_and_repeats_differ(shared: Any, rows: Rows) -> None:
    records = shared.gym.collect(rows(*("chain_sum", "letter_counting")), num_repeats=2, num_samples_in_parallel=32)
    summary = shared.gym.last_summary
    assert summary is not None
    assert len(records) == summary.counts.completed == summary.counts.requested == 200
    assert (summary.counts.failed, summary.counts.unresolved, summary.interrupted) == (0, 0, False)
    assert {record["_ng_environment_server"] for record in records} == {"reasoning_gym_environment"}
    assert {record["_ng_task_id"]["taskset"] for record in records} == {"chain_sum", "letter_counting"}
    assert {record["_ng_result_type"] for record in records} == {"single_agent_turn"}
    right = rewards(records)[1.0]
    assert 0.7 * 200 - 3 * (200 * 0.21) ** 0.5 <= right <= 0.7 * 200 + 3 * (200 * 0.21) ** 0.5
    pairs: dict[int, set[float]] = {}
    for record in records:
        pairs.setdefault(record["_ng_task_index"], set()).add(record["reward"])
    assert any(len(both) == 2 for both in pairs.values()), "no task had two different answers"


def test_the_files_of_a_run_are_where_the_summary_says_and_belong_to_the_caller(shared: Any, rows: Rows) -> None:
    import os
    from pathlib import Path

    shared.gym.collect(rows("chain_sum", each=3))
    files = {kind: Path(path) for kind, path in shared.gym.last_summary.files.items()}
    assert {"rollouts", "failures", "materialized_inputs", "aggregate_metrics"} <= set(files)
    for path in files.values():
        assert path.is_file(), path
        assert (path.stat().st_uid, path.stat().st_gid) == (os.getuid(), os.getgid())
    assert len(json.loads(files["aggregate_metrics"].read_bytes())) >= 1


def test_the_same_records_come_at_any_concurrency(shared: Any, rows: Rows) -> None:
    def key(records: list[dict[str, Any]]) -> list[Any]:
        return sorted((record["_ng_task_index"], record["_ng_rollout_index"], record["reward"]) for record in records)

    taken = rows("chain_sum", each=20)
    one = shared.gym.collect(taken, num_repeats=2, num_samples_in_parallel=1)
    many = shared.gym.collect(taken, num_repeats=2, num_samples_in_parallel=64)
    assert key(one) == key(many)


def test_the_same_tasks_as_flat_rows_go_through_the_relay(shared: Any, rows: Rows) -> None:
    flat = rows("chain_sum_flat", "letter_counting_flat")
    records = shared.gym.collect(
        flat, agent_name="reasoning_gym_simple_agent", environment_routing_mode="legacy", environment_server_name="flat_environment"
    )
    assert len(records) == 100
    assert {record["_ng_environment_server"] for record in records} == {"flat_environment"}
    assert {record["_ng_result_type"] for record in records} == {"legacy_agent"}
    assert 0.7 * 100 - 3 * (100 * 0.21) ** 0.5 <= rewards(records)[1.0] <= 0.7 * 100 + 3 * (100 * 0.21) ** 0.5


def test_a_model_on_this_host_is_reached_over_the_host_gateway(shared: Any) -> None:
    row = {"responses_create_params": {"input": [{"role": "user", "content": "Hello?"}]}, "agent_ref": {"name": "outside_agent"}}
    (record,) = shared.gym.collect([row])
    assert record["response"]["output"][-1]["content"][0]["text"] == "outside"


def test_the_published_head_lists_every_server_and_masks_what_is_not_published(shared: Any) -> None:
    with shared.gym.head() as head:
        health = head.health()
        instances = head.instances()
        identity = head.identity()
    assert health is not None
    assert health.status == "ok"
    assert identity is not None
    assert (identity.project, identity.engine) == (shared.gym.name, "docker")
    assert instances is not None
    assert {instance.process_name for instance in instances} == {
        service.instance for service in shared.gym.project.deployment.services if service.instance
    }
    assert {instance.url for instance in instances} == {None}


def test_each_service_is_hardened_and_runs_as_nobody_in_particular(shared: Any) -> None:
    api = shared.gym.docker.api
    for state in shared.gym.observe().services:
        facts = api.inspect(state.identity, Deadline.after(20))
        host = facts["HostConfig"]
        assert facts["Config"]["User"].split(":")[0] != "0", state.service
        assert host["ReadonlyRootfs"] is True
        assert host["CapDrop"] == ["ALL"]
        assert any(option.startswith("no-new-privileges") for option in host["SecurityOpt"])
        assert host["Memory"] > 0
        assert host["NanoCpus"] > 0
        assert host["PidsLimit"] > 0
        assert host["Init"] is True
        assert not host["Privileged"]
        assert not any("docker.sock" in mount["Source"] for mount in facts["Mounts"])


def test_logs_take_the_name_of_the_config(shared: Any) -> None:
    assert "(own_tool)" in shared.gym.logs("own_tool")
    assert "(own_tool)" not in shared.gym.logs("policy_model")
