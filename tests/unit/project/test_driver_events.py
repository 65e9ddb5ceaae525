from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from gym_compose.project.errors import RunFailedError
from gym_compose.project.events import DriverOutput, RunEvent, parse_event
from gym_compose.wire.run import RunCounts, RunFailed, RunProgress, RunSummary, RunWarning

COUNTS = RunCounts(requested=4, completed=3, failed=1)
PROGRESS = RunProgress(counts=COUNTS, in_flight=0, elapsed_seconds=1.0, rate=4.0)
SUMMARY = RunSummary(run_id="r", counts=COUNTS, elapsed_seconds=1.0, rate=4.0, files={"rollouts": "/io/output/r.jsonl"})
FAILED = RunFailed(message="no route for key=hunter22", hint="Say one.", exit_code=3)


def line(event: BaseModel) -> str:
    return orjson.dumps(event.model_dump(mode="json")).decode()


def output(seen: list[RunEvent], tail: int = 2) -> DriverOutput:
    return DriverOutput(seen.append, tail_lines=tail, redact=lambda text: text.replace("hunter22", "****"))


@pytest.mark.parametrize("event", [PROGRESS, SUMMARY, FAILED, RunWarning(text="slow")])
def test_each_event_comes_back_from_its_line(event: BaseModel) -> None:
    assert parse_event(line(event)) == event


@pytest.mark.parametrize("text", ["", "{", "{}", '{"event": "other"}', '{"event": "warning"}', "[1]", "Traceback (most recent call last):"])
def test_other_text_is_no_event(text: str) -> None:
    assert parse_event(text) is None


@given(st.text())
def test_no_text_is_too_strange(text: str) -> None:
    assert parse_event(text) is None or text.startswith("{")


def test_progress_and_warnings_are_told_and_the_summary_is_returned() -> None:
    seen: list[RunEvent] = []
    driver = output(seen)
    for event in (PROGRESS, RunWarning(text="slow"), SUMMARY):
        driver.feed(line(event))
    assert seen == [PROGRESS, RunWarning(text="slow")]
    assert driver.summary(0) == SUMMARY


def test_a_failed_run_raises_what_the_driver_said_with_its_exit_code_and_tail_masked() -> None:
    driver = output([])
    for text in ("one", "", "two hunter22", "three", line(FAILED)):
        driver.feed(text)
    with pytest.raises(RunFailedError) as caught:
        driver.summary(3)
    assert caught.value.exit_code == 3
    assert caught.value.message == "no route for key=****"
    assert caught.value.hint == "Say one."
    assert caught.value.details == ("two ****", "three")


@pytest.mark.parametrize(
    ("code", "words", "exit_code"), [(137, "was stopped", 137), (2, "exit code 2", 2), (None, "unknown", 1), (0, "exit code 0", 1)]
)
def test_a_driver_that_ends_without_a_word_is_a_failure(code: int | None, words: str, exit_code: int) -> None:
    driver = output([])
    driver.feed("Killed")
    with pytest.raises(RunFailedError, match=words) as caught:
        driver.summary(code)
    assert caught.value.exit_code == exit_code
    assert caught.value.details == ("Killed",)
