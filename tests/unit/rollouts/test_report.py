"""The page without a browser (tests/browser opens it in one): escaping, the policy, what is left out."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.rollouts import report as module
from gym_compose.rollouts.report import json_block, make_report, number, render, write_report
from gym_compose.rollouts.sample import Sample
from gym_compose.wire.errors import PrerequisiteError
from tests.unit.rollouts.conftest import WriteRun, record

HOSTILE = "</script><script>alert(1)</script><!--"


@given(st.text())
def test_json_in_a_script_element_ends_nothing_and_means_the_same(text: str) -> None:
    block = json_block({"text": text})
    assert not re.search(r"[<>&\u2028\u2029]", block)
    assert json.loads(block) == {"text": text}


def test_text_of_rollouts_is_escaped_wherever_it_stands(write_run: WriteRun) -> None:
    hostile = {**record(0, 0, 1.0, note=HOSTILE), "agent_ref": {"name": HOSTILE}, "_ng_environment_server": HOSTILE}
    failed = {**record(1, 0), "_ng_failure_class": HOSTILE, "_ng_failure_message": HOSTILE}
    page = render(make_report(write_run([hostile], failures=[failed])))
    assert "alert(1)</script>" not in page
    assert "<!--" not in page
    assert page.count("<script") == 2


def test_the_policy_names_the_pages_own_script_and_style(write_run: WriteRun) -> None:
    page = render(make_report(write_run([record(0, 0, 1.0)])))
    policy = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)[0].replace("&#39;", "'")
    assert "default-src 'none'" in policy
    for name in ("script", "style"):
        inside = re.findall(rf"<{name}>(.*?)</{name}>", page, re.DOTALL)[0]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy
    assert not re.search(r"<(?:script|link|img|iframe)[^>]* (?:src|href)=\"(?!data:)", page)


def test_a_sample_says_that_it_is_one(write_run: WriteRun) -> None:
    rollouts = write_run([record(task, 0, 1.0) for task in range(10)])
    assert "A sample of 3 of 10" in render(make_report(rollouts, Sample(rollouts=3)))
    assert "All of them." in render(make_report(rollouts))


def test_what_is_too_long_together_is_left_out_and_told(write_run: WriteRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TEXT_BUDGET", 1500)
    made = make_report(write_run([record(task, 0, 1.0, note="x" * 500) for task in range(5)]))
    assert (len(made.conversations), made.left_out) == (2, 3)
    assert "3 more were too long" in render(made)


def test_an_empty_file_gives_a_page(write_run: WriteRun) -> None:
    assert "Mean reward" in render(make_report(write_run([])))


def test_a_report_that_cannot_be_written(write_run: WriteRun, tmp_path: Path) -> None:
    made = make_report(write_run([]))
    (tmp_path / "file").write_text("")
    with pytest.raises(PrerequisiteError, match="cannot be written"):
        write_report(made, tmp_path / "file" / "report.html")


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (1234.0, "1,234"), (0.7134, "0.713"), (632.14, "632.1")])
def test_numbers_as_they_are_shown(value: float | None, text: str) -> None:
    assert number(value) == text
