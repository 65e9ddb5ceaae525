"""Progress of a start and of a run: plain lines, live table, bar, summary."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from gym_compose.cli.console import Console
from gym_compose.cli.progress import LiveProgress, PlainProgress, up_progress
from gym_compose.cli.run_progress import BarRun, PlainRun, describe, duration, run_display, show_summary
from gym_compose.engine.interface import PlannedAction
from gym_compose.wire.head import HealthReport, InstanceHealth
from gym_compose.wire.run import GroupSummary, RunCounts, RunProgress, RunSummary, RunWarning


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


ACTIONS = (
    PlannedAction("head", "keep", "unchanged"),
    PlannedAction("math", "create", "does not exist"),
    PlannedAction("old", "remove", "not in this configuration"),
)


def health(*waiting: tuple[str, str], status: str = "starting") -> HealthReport:
    items = tuple(InstanceHealth(name=name, kind="server", state=state, url="http://x") for name, state in waiting)
    return HealthReport(status=status, phase="servers", elapsed_seconds=0.0, waiting=items)


def test_plain_lines_say_each_thing_once(captured: Any) -> None:
    with PlainProgress(captured.console) as progress:
        progress.plan(ACTIONS)
        progress.report("creating math")
        progress.health(health(("math", "waiting")))
        progress.health(health(("math", "waiting")))
        progress.health(health(("http://model/v1", "waiting")))
        progress.health(health(status="ok"))
    assert captured.stderr.splitlines() == [
        "plan: create 1, keep 1, remove 1",
        "creating math",
        "head: ready",
        "math: ready",
        "http://model/v1: ready",
    ]
    assert captured.stdout == ""


def test_nothing_to_do(captured: Any) -> None:
    PlainProgress(captured.console).plan(())
    assert captured.stderr == "plan: nothing to do\n"


def test_a_terminal_gets_a_live_table() -> None:
    err = Terminal()
    console = Console(io.StringIO(), err, interactive=True)
    progress = up_progress(console)
    assert isinstance(progress, LiveProgress)
    with progress:
        progress.plan(ACTIONS)
        progress.report("creating math")
        progress.health(health(("math", "waiting")))
        progress.health(health(status="ok"))
    text = err.getvalue()
    assert "creating math" in text
    assert "ready" in text
    assert text.rindex("math") > text.rindex("head")
    assert "to remove" not in text[text.rindex("head") :]


def event(done: int = 12, failed: int = 2, elapsed: float = 1.0, **fields: Any) -> RunProgress:
    counts = RunCounts(requested=100, completed=done - failed, failed=failed, unresolved=100 - done)
    return RunProgress(counts=counts, in_flight=4, elapsed_seconds=elapsed, rate=3.44, **fields)


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (event(0, 0), "0/100 done, 3.4/s, 4 in flight, 96 queued"),
        (event(12, 0, eta_seconds=26.0, mean_reward=0.7128), "12/100 done, 3.4/s, ETA 0:26, 4 in flight, 84 queued, reward 0.713"),
        (event(failures={"b": 1, "a": 1}), "12/100 done, 3.4/s, 4 in flight, 84 queued, 2 failed (a 1, b 1)"),
        (event(failures={"b": 2, "a": 1}), "12/100 done, 3.4/s, 4 in flight, 84 queued, 2 failed (b 2, a 1)"),
        (event(), "12/100 done, 3.4/s, 4 in flight, 84 queued, 2 failed"),
        (event(100, 0).model_copy(update={"in_flight": 0}), "100/100 done, 3.4/s"),
    ],
)
def test_a_progress_line(progress: RunProgress, text: str) -> None:
    assert describe(progress) == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.4, "0:59"), (59.6, "1:00"), (3723, "1:02:03"), (-1, "0:00")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_plain_run_prints_at_most_a_line_an_interval_and_always_the_last(captured: Any) -> None:
    with PlainRun(captured.console, 5.0) as display:
        for elapsed, done in ((0.0, 0), (1.0, 5), (5.0, 40), (6.0, 50), (7.0, 100)):
            display(event(done, 0, elapsed))
        display(RunWarning(text="slow"))
    assert [line.split()[0] for line in captured.stderr.splitlines()] == ["0/100", "40/100", "100/100", "Warning:"]


def test_a_terminal_gets_a_bar() -> None:
    err = Terminal()
    display = run_display(Console(io.StringIO(), err, interactive=True), 5.0)
    assert isinstance(display, BarRun)
    with display:
        display(event(eta_seconds=26.0, mean_reward=0.5))
        display(RunWarning(text="[slow]"))
        display(event(100, failures={"agent_run_error": 2}))
    text = err.getvalue()
    for expected in ("100/100", "3.4/s", "4 in flight", "2 failed: agent_run_error 2", "Warning: [slow]"):
        assert expected in text, expected


def test_with_json_the_events_themselves_are_told_one_a_line(captured: Any) -> None:
    display = run_display(captured.console, 5.0, json=True)
    with display:
        display(event(mean_reward=0.5))
        display(RunWarning(text="slow"))
        display(SUMMARY)
    told = [json.loads(line) for line in captured.stderr.splitlines()]
    assert [line["event"] for line in told] == ["progress", "warning"]
    assert told[0]["mean_reward"] == 0.5
    assert captured.stdout == ""


SUMMARY = RunSummary(
    run_id="r1",
    counts=RunCounts(requested=10, completed=7, failed=2, unresolved=1),
    elapsed_seconds=61.0,
    rate=0.15,
    mean_reward=0.5,
    failures={"agent_run_error": 2},
    groups=(
        GroupSummary(environment_server="env", taskset="sums", rollouts=5, failed=1, mean_reward=0.25),
        GroupSummary(environment_server="env", agent="me", rollouts=5, failed=1),
    ),
    files={"rollouts": "/x/r.jsonl"},
)


def test_the_summary_table_says_where_the_files_are(captured: Any) -> None:
    show_summary(SUMMARY, captured.console, json=False)
    lines = captured.stdout.splitlines()
    assert [line.split() for line in lines[4:6]] == [["env", "sums", "5", "1", "0.2500"], ["env", "me", "5", "1"]]
    assert lines[6:] == [
        "10 requested: 7 completed, 2 failed, 1 unresolved; mean reward 0.5000; 1:01, 0.1 rollouts/s",
        "  failed: agent_run_error 2",
        "rollouts: /x/r.jsonl",
    ]


def test_the_summary_as_json(captured: Any) -> None:
    show_summary(SUMMARY, captured.console, json=True)
    assert json.loads(captured.stdout)["counts"]["unresolved"] == 1


def test_plain_lines_name_the_endpoint_that_is_waited_for_and_tell_a_warning_once(captured: Any) -> None:
    endpoint = InstanceHealth(
        name="policy.base_url", kind="model_endpoint", state="waiting", url="http://m/v1/models", detail="connection refused"
    )
    report = HealthReport(status="starting", phase="model_endpoints", elapsed_seconds=0.0, waiting=(endpoint,), warnings=("slow",))
    with PlainProgress(captured.console) as progress:
        progress.plan(())
        progress.health(report)
        progress.health(report)
        progress.health(HealthReport(status="ok", phase="ready", elapsed_seconds=1.0, warnings=("slow",)))
    assert captured.stderr.splitlines() == [
        "plan: nothing to do",
        "policy.base_url: waiting: connection refused (http://m/v1/models)",
        "Warning: slow",
        "policy.base_url: ready",
    ]


def test_a_class_that_a_server_made_up_cannot_steer_the_terminal(captured: Any) -> None:
    show_summary(SUMMARY.model_copy(update={"failures": {"a\n\x1b[31mü": 1}}), captured.console, json=False)
    assert "  failed: a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}[31mü 1" in captured.stdout.splitlines()
