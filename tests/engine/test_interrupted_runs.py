"""The command line dies in mid-run, by each signal: a run on Docker goes on or ends in order, and ``down`` leaves nothing."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gym_compose.testing import find_leftovers

pytestmark = pytest.mark.slow
ENGINES = [pytest.param("docker", marks=pytest.mark.docker), "process"]
ROOT = Path(__file__).resolve().parents[2]
MANY = 400  # repeats of 100 tasks: minutes of work, so that every signal comes in the middle


def run_arguments(engine: str, repeats: int) -> tuple[str, ...]:
    return (
        *("eval", "run", "--config", str(ROOT / "configs" / "quickstart.yaml"), "--split", "train", "--engine", engine),
        *("--num-repeats", str(repeats), "--concurrency", "8", "--output", "out/rollouts.jsonl"),
    )


def start_run(cli: Any, engine: str, repeats: int, *more: str) -> Any:
    """A run that has put rollouts on the disk."""
    output: Path = cli.cwd / "out" / "rollouts.jsonl"
    before = output.stat().st_size if output.is_file() else 0
    process = cli.start(*run_arguments(engine, repeats), *more)

    def collecting() -> bool:
        assert process.poll() is None, process.communicate()
        return output.is_file() and output.stat().st_size > before

    cli.wait_for(collecting, "the first rollout", seconds=180)
    return process


def driver_names(cli: Any) -> list[str]:
    """Containers of drivers, running or not."""
    (project,) = cli.projects()
    return [name for name in find_leftovers(project, environ=cli.environ).containers if "-driver-" in name]


def complete(output: Path) -> int:
    """Records of a run's file, each a whole line."""
    return len([json.loads(line) for line in output.read_bytes().splitlines()])


def assert_whole(cli: Any, requested: int) -> None:
    """Every row once in the output, none missing, and the summary says so."""
    output = cli.cwd / "out" / "rollouts.jsonl"
    keys = [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in map(json.loads, output.read_bytes().splitlines())]
    assert len(keys) == len(set(keys)) == requested
    counts = json.loads(output.with_name("rollouts_summary.json").read_bytes())["counts"]
    assert counts == {"requested": requested, "completed": requested, "failed": 0, "unresolved": 0}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_ends_the_run_in_order_and_stops_everything(cli: Any, engine: str, number: signal.Signals) -> None:
    process = start_run(cli, engine, MANY)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=90)
    text = stdout + stderr
    assert process.returncode == 130, text
    assert "Traceback" not in text, text
    assert "rollouts.jsonl" in text, "no summary with where the files are"
    assert 0 < complete(cli.cwd / "out" / "rollouts.jsonl") < 100 * MANY
    summary = json.loads((cli.cwd / "out" / "rollouts_summary.json").read_bytes())
    counts = summary["counts"]
    assert summary["interrupted"] is True
    assert counts["completed"] + counts["failed"] + counts["unresolved"] == counts["requested"] == 100 * MANY
    assert cli.leftovers() == "nothing is left"


@pytest.mark.docker
def test_a_killed_command_line_leaves_a_run_that_goes_on_and_down_stops_it(cli: Any) -> None:
    process = start_run(cli, "docker", MANY)
    process.kill()
    process.communicate()
    output = cli.cwd / "out" / "rollouts.jsonl"
    (name,) = driver_names(cli)
    before = output.stat().st_size
    cli.wait_for(lambda: output.stat().st_size > before, f"{name} to go on without its command line")
    ended = cli("compose", "down")
    assert ended.code == 0, ended.text
    assert cli.leftovers() == "nothing is left"
    assert complete(output) > 0


@pytest.mark.docker
def test_a_run_whose_command_line_was_killed_can_be_followed_to_its_end(cli: Any) -> None:
    process = start_run(cli, "docker", 8)
    process.kill()
    process.communicate()
    (name,) = driver_names(cli)
    second = cli(*run_arguments("docker", 8), "--resume")
    assert second.code == 1, second.text
    assert f"still going on and writes to this output, in container {name}" in second.text
    assert "gym eval attach" in second.text
    attached = cli("eval", "attach")
    assert attached.code == 0, attached.text
    assert_whole(cli, 800)
    assert driver_names(cli) == [], "the driver's container stayed"
    (directory,) = (cli.cwd / ".gym" / cli.projects()[0] / "runs").iterdir()
    assert (directory / "exit_code").read_text() == "0\n"
    assert cli("compose", "down").code == 0


@pytest.mark.docker
def test_a_run_is_gone_on_with_after_the_death_of_its_driver_and_of_both(cli: Any) -> None:
    process = start_run(cli, "docker", 8)
    subprocess.run(["docker", "kill", *driver_names(cli)], check=True, capture_output=True)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "the driver was stopped before it was done" in stdout + stderr
    assert "--resume" in stdout + stderr
    process = start_run(cli, "docker", 8, "--resume")
    process.kill()
    process.communicate()
    subprocess.run(["docker", "kill", *driver_names(cli)], check=True, capture_output=True)
    resumed = cli(*run_arguments("docker", 8), "--resume")
    assert resumed.code == 0, resumed.text
    assert "going on with run" in resumed.stderr
    assert_whole(cli, 800)
    assert cli("compose", "down").code == 0


def test_a_run_of_the_process_engine_is_gone_on_with_after_the_death_of_its_command(cli: Any) -> None:
    process = start_run(cli, "process", 8)
    process.kill()
    process.communicate()
    resumed = cli(*run_arguments("process", 8), "--resume")
    assert resumed.code == 0, resumed.text
    assert "going on with run" in resumed.stderr
    assert_whole(cli, 800)
    changed = cli(*run_arguments("process", 9), "--resume")
    assert changed.code == 1, changed.text
    assert "ready" not in changed.text, "servers were started for a run that is refused"
    assert "num_repeats: it was 8, now it is 9" in changed.text
    assert cli("compose", "down").code == 0


def test_a_killed_command_line_of_the_process_engine_leaves_servers_that_down_stops(cli: Any) -> None:
    process = start_run(cli, "process", MANY)
    process.kill()
    process.communicate()
    assert cli.leftovers() != "nothing is left"
    ended = cli("compose", "down")
    assert ended.code == 0, ended.text
    assert cli.leftovers() == "nothing is left"


@pytest.mark.parametrize("engine", ENGINES)
def test_an_interrupt_while_servers_start_leaves_nothing(cli: Any, engine: str) -> None:
    config = cli.small_config(server_spinup_timeout_seconds=300)
    app = cli.cwd / "resources_servers" / "own_tool" / "app.py"
    app.write_text("import time\ntime.sleep(300)\n" + app.read_text().replace("from __future__ import annotations\n", ""))
    process = cli.start("compose", "up", "-d", "--config", config, "--engine", engine)
    cli.read_until(process.stderr, "environment: ready", seconds=180)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=90)
    assert process.returncode == 130, stderr
    assert cli.leftovers() == "nothing is left"
