"""The tutorial of environment servers, followed: its code is written where it says, its test is run, its config compiles and is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gym_compose.project.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "environment-servers.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
GYM = (sys.executable, "-m", "gym_compose.cli.main")


def run(cwd: Path, *command: str, seconds: float = 120) -> str:
    done = subprocess.run(command, cwd=cwd, env=ENVIRON, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def followed(tmp_path: Path) -> Path:
    """A directory with what the page tells to write: a block whose first line is a comment with a path, and the task."""
    run(tmp_path, *GYM, "env", "init", "--server", "environment_servers/second_chance")
    for made in (tmp_path / "environment_servers" / "second_chance" / "tests").iterdir():
        made.unlink()  # of the scaffold's own app.py, which the page's takes the place of
    written = []
    for language, text in BLOCK.findall(TEXT):
        path = "tasks.jsonl" if language == "json" else text.partition("\n")[0].removeprefix("# ")
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
        written.append(path)
    assert written == [
        "environment_servers/second_chance/app.py",
        "environment_servers/second_chance/tests/test_second_chance.py",
        "second_chance.yaml",
        "tasks.jsonl",
    ]
    return tmp_path


def test_the_test_of_the_page_passes_and_its_config_compiles(followed: Path) -> None:
    tested = run(followed, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "environment_servers/second_chance/tests")
    assert "1 passed" in tested
    assert "environment_servers/second_chance" in run(followed, *GYM, "compose", "plan", "--config", "second_chance.yaml")


@pytest.mark.slow
def test_the_server_of_the_page_runs(followed: Path) -> None:
    project = ("-p", "second-chance-docs")
    run(
        followed,
        *GYM,
        "compose",
        "up",
        "-d",
        "--engine",
        "process",
        *project,
        "--config",
        "second_chance.yaml",
        f"++head_server.port={free_port()}",
    )
    try:
        collected = ("eval", "run", "--no-serve", *project, "-i", "tasks.jsonl", "-o", "results/coats.jsonl")
        shown = run(followed, *GYM, *collected)
        assert "1 requested: 1 completed, 0 failed" in shown
        (record,) = (followed / "results" / "coats.jsonl").read_text(encoding="utf-8").splitlines()
        assert '"I would rather not look."' in record
    finally:
        run(followed, *GYM, "compose", "down", *project)


def test_the_page_names_every_shipped_environment_server() -> None:
    shipped = {path.parent.name for path in (ROOT / "servers" / "environment_servers").glob("*/app.py")}
    table = TEXT.partition("## The servers that ship")[2]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == shipped
