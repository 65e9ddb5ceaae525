"""The report of ``gym eval view`` in a real headless Chromium: it opens from disk, runs without an error, and reads no markup of rollouts.

Where no Chromium is, these tests skip; in CI, or with GYM_COMPOSE_REQUIRE_DOCKER=1, they fail (``make browser`` installs one).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from gym_compose.rollouts.report import make_report, write_report

SECONDS = 240
HOSTILE = "</script><script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">"
WORDS = "gym-compose report test"


@dataclass(frozen=True)
class Page:
    """The document after its scripts have run, and what they wrote to the console."""

    dom: str
    console: list[str]


@pytest.fixture(scope="session")
def chromium() -> str:
    found = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
    if found is None:
        missing = "no chromium on PATH; `make browser` installs one"
        if os.environ.get("GYM_COMPOSE_REQUIRE_DOCKER") == "1" or os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found


def opened(chromium: str, file: Path, profile: Path) -> Page:
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", f"--user-data-dir={profile}"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--dump-dom", file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return Page(done.stdout, re.findall(r"CONSOLE.*", done.stderr))


def run_files(directory: Path, text: str) -> Path:
    """A run of three tasks with everything that a report shows."""
    rollouts = directory / "rollouts.jsonl"
    lines = [_rollout(task, repeat, text) for task in range(3) for repeat in range(2)]
    rollouts.write_bytes(b"\n".join(map(orjson.dumps, lines)) + b"\n")
    failure = {"_ng_failure_class": f"agent_run_error {text}", "_ng_failure_message": text, "_ng_task_index": 3, "_ng_rollout_index": 0}
    (directory / "rollouts_failures.jsonl").write_bytes(orjson.dumps(failure) + b"\n")
    return rollouts


def _rollout(task: int, repeat: int, text: str) -> dict[str, Any]:
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": f"thought {text}"}]},
        {"type": "function_call", "name": f"get_weather{text}", "arguments": orjson.dumps({"city": text}).decode(), "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": f"cold {text}"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"{WORDS} {text}"}]},
    ]
    return {
        "responses_create_params": {"instructions": f"be brief {text}", "input": [{"role": "user", "content": f"question {text}"}]},
        "response": {"output": output, "usage": {"input_tokens": 10 + task, "output_tokens": 5 + repeat, "total_tokens": 15}},
        "reward": float((task + repeat) % 2),
        "elapsed_seconds": 1.5 + task,
        "note": text,
        "_ng_task_index": task,
        "_ng_rollout_index": repeat,
        "agent_ref": {"name": f"agent{text}"},
        "_ng_environment_server": f"env{text}",
    }


def test_it_opens_without_an_error_and_runs_no_word_of_a_rollout(chromium: str, tmp_path: Path) -> None:
    report = make_report(run_files(tmp_path, HOSTILE))
    write_report(report, tmp_path / "report.html")
    page = opened(chromium, tmp_path / "report.html", tmp_path / "profile")
    assert page.console == []
    assert "<title>Rollouts of " in page.dom
    assert "<img" not in page.dom
    assert len(re.findall(r"<script[\s>]", page.dom)) == 2
    # The script has filled the list and shown the first one.
    assert len(re.findall(r"<li><button", page.dom)) == len(report.conversations) == 7
    shown = page.dom.partition('<article id="shown"')[2].partition("</article>")[0]
    assert "&lt;/script&gt;&lt;script&gt;document.title=" in shown


def test_messages_and_tool_calls_of_a_rollout_are_on_the_page(chromium: str, tmp_path: Path) -> None:
    rollouts = run_files(tmp_path, "")
    (tmp_path / "rollouts_failures.jsonl").unlink()
    write_report(make_report(rollouts), tmp_path / "report.html")
    page = opened(chromium, tmp_path / "report.html", tmp_path / "profile")
    assert page.console == []
    shown = page.dom.partition('<article id="shown"')[2].partition("</article>")[0]
    text = re.sub(r"<[^>]+>", " ", shown)
    for expected in ("be brief", "question", "thought", "tool call: get_weather", '{"city":""}', "tool result", "cold", WORDS):
        assert expected in text, expected
    charts = page.dom.partition('<section class="charts"')[2]
    for title in ("Rewards", "pass@k", "Output tokens", "Tool calls", "Latency"):
        assert f"<h2>{title}</h2>" in charts, title
    assert charts.count("<svg") >= 5


def test_the_policy_stops_what_is_not_the_pages_own(chromium: str, tmp_path: Path) -> None:
    """The check itself: a script that is smuggled into the page is not run, and the console says so."""
    file = tmp_path / "report.html"
    write_report(make_report(run_files(tmp_path, "")), file)
    smuggled = "<script>document.title='hacked'</script></main>"
    file.write_text(file.read_text(encoding="utf-8").replace("</main>", smuggled), encoding="utf-8")
    page = opened(chromium, file, tmp_path / "profile")
    assert "<title>Rollouts of " in page.dom
    assert any("Content Security Policy" in line for line in page.console)
