"""The README's command on either engine: from configs to rollouts on disk; nothing is left afterwards."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.slow
ENGINES = [pytest.param("docker", marks=pytest.mark.docker), "process"]
ROOT = Path(__file__).resolve().parents[2]
THREE_SIGMA = 3 * (200 * 0.7 * 0.3) ** 0.5


def records(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def run(cli: Any, config: str, engine: str, *more: str) -> Any:
    arguments = ["--config", str(ROOT / "configs" / config), "--split", "train", "--num-repeats", "2", "--concurrency", "32"]
    return cli("eval", "run", *arguments, "--output", "out/rollouts.jsonl", "--engine", engine, *more)


@pytest.mark.parametrize("engine", ENGINES)
def test_one_command_gives_verified_rollouts_and_leaves_nothing(cli: Any, engine: str) -> None:
    ended = run(cli, "quickstart.yaml", engine)
    assert ended.code == 0, ended.text
    found = records(cli.cwd / "out" / "rollouts.jsonl")
    assert len(found) == 200
    assert abs(sum(record["reward"] for record in found) - 140) <= THREE_SIGMA
    assert {record["_ng_task_id"]["taskset"] for record in found} == {"chain_sum", "letter_counting"}
    for file in (cli.cwd / "out").iterdir():
        if file.is_file():
            assert file.stat().st_uid == os.getuid(), file
            assert str(file) in ended.text or file.name in ended.text or file.suffix == ".jsonl", file
    assert "rollouts.jsonl" in ended.text
    assert cli.leftovers() == "nothing is left"


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_tasks_as_flat_rows_give_as_many_records(cli: Any, engine: str) -> None:
    ended = run(cli, "quickstart_legacy.yaml", engine, "++num_repeats_add_seed=true")
    assert ended.code == 0, ended.text
    found = records(cli.cwd / "out" / "rollouts.jsonl")
    assert len(found) == 200
    assert {record["_ng_result_type"] for record in found} == {"legacy_agent"}
    assert abs(sum(record["reward"] for record in found) - 140) <= THREE_SIGMA


@pytest.mark.parametrize("engine", ENGINES)
def test_up_collect_and_down_one_after_the_other(cli: Any, engine: str, rows: Any) -> None:
    config = cli.small_config()
    example = ROOT / "servers" / "resources_servers" / "example_single_tool_call" / "data" / "example.jsonl"
    up = cli("compose", "up", "-d", "--config", config, "--engine", engine, "--json")
    assert up.code == 0, up.text
    head = json.loads(up.stdout)["head"]
    with httpx.Client(base_url=head, trust_env=False) as client:
        assert client.get("/health").status_code == 200
        assert client.get("/gym_compose").json()["engine"] == engine
        assert {entry["process_name"] for entry in client.get("/server_instances").json()} == {
            "tool",
            "agent",
            "policy_model",
            "environment",
        }

    again = cli("compose", "up", "-d", "--config", config, "--engine", engine, "--json")
    assert again.code == 0, again.text
    assert json.loads(again.stdout)["head"] == head

    states = json.loads(cli("compose", "ps", "--json").stdout)
    assert {state["service"]: state["status"] for state in states} == dict.fromkeys(
        ["head", "tool", "agent", "policy_model", "environment"], "running"
    )
    assert "tool" in cli("compose", "logs", "tool").stdout

    collected = cli(
        "eval",
        "run",
        "--no-serve",
        "--input",
        str(example),
        "--output",
        "o.jsonl",
        "--agent",
        "agent",
        "--limit",
        "3",
        "--num-repeats",
        "2",
    )
    assert collected.code == 0, collected.text
    assert len(records(cli.cwd / "o.jsonl")) == 6

    for _ in range(2):
        down = cli("compose", "down")
        assert down.code == 0, down.text
    assert cli.leftovers() == "nothing is left"
    missing = cli("eval", "run", "--no-serve", "--input", str(example), "--output", "p.jsonl", "--agent", "agent", "++head_server.port=9")
    assert missing.code == 1, missing.text
    assert "no head server answers" in missing.text


@pytest.mark.parametrize("engine", ENGINES)
def test_stored_rollouts_are_verified_again_and_shards_are_joined_by_running_servers(cli: Any, engine: str) -> None:
    config = cli.small_config()
    example = ROOT / "servers" / "resources_servers" / "example_single_tool_call" / "data" / "example.jsonl"
    up = cli("compose", "up", "-d", "--config", config, "--engine", engine)
    assert up.code == 0, up.text
    try:
        for shard in ("a", "b"):
            rows = cli.cwd / f"rows-{shard}.jsonl"
            row = json.loads(example.read_text().splitlines()[0])
            rows.write_text(json.dumps({**row, "_ng_task_index": ord(shard)}) + "\n")
            collected = cli(
                "eval", "run", "--no-serve", "-i", str(rows), "-o", f"out/{shard}.jsonl", "--agent", "agent", "--num-repeats", "2"
            )
            assert collected.code == 0, collected.text
        joined = cli("eval", "aggregate", "-i", "out/*.jsonl", "-o", "joined/all.jsonl")
        assert joined.code == 0, joined.text
        keys = [(record["_ng_task_index"], record["_ng_rollout_index"]) for record in records(cli.cwd / "joined" / "all.jsonl")]
        assert keys == [(97, 0), (97, 1), (98, 0), (98, 1)]
        metrics = json.loads((cli.cwd / "joined" / "all_aggregate_metrics.json").read_text())
        assert [entry["agent_metrics"]["num_repeats"] for entry in metrics] == [2]
        of = ["--inputs", "out/a_materialized_inputs.jsonl", "--rollouts", "out/a.jsonl"]
        refused = cli("eval", "reverify", "--no-serve", *of, "-o", "again/a.jsonl")
        assert refused.code == 1, refused.text
        assert "not stateless: tool" in refused.text
        again = cli("eval", "reverify", "--no-serve", *of, "-o", "again/a.jsonl", "--force")
        assert again.code == 0, again.text
        assert [record["reward"] for record in records(cli.cwd / "again" / "unsafe_a.jsonl")] == [
            record["reward"] for record in records(cli.cwd / "out" / "a.jsonl")
        ]
    finally:
        down = cli("compose", "down")
    assert down.code == 0, down.text
    assert cli.leftovers() == "nothing is left"


@pytest.mark.parametrize("engine", ENGINES)
def test_the_foreground_form_ends_with_the_fields_last_line(cli: Any, engine: str) -> None:
    import signal

    config = cli.small_config()
    process = cli.start("env", "start", "--config", config, "--engine", engine)
    cli.read_until(process.stderr, "All servers are ready")
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=90)
    assert process.returncode == 0, stdout + stderr
    assert stdout.rstrip().endswith("NeMo Gym finished!")
    assert cli.leftovers() == "nothing is left"
