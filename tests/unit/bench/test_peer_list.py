"""``make peer``: its list, the configs made of it, and the page that it writes and reads again."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bench.peer.beside import Compared
from bench.peer.case import EXAMPLE, read_cases
from bench.peer.report import Line, lost, read, read_compared, text
from bench.peer.run import Outcome

URL = "http://127.0.0.1:9/v1"


def test_the_list_is_the_servers_that_were_seen_to_start() -> None:
    cases = read_cases()
    assert len(cases) == 158
    assert len({case.label for case in cases}) == 158
    assert sum(case.rollout for case in cases) == 75
    assert all(case.rows for case in cases if case.rollout)
    assert all(config.endswith(".yaml") for case in cases for config in case.configs)


@pytest.mark.parametrize("case", read_cases(), ids=lambda case: case.label)
def test_each_case_makes_a_config(case: object) -> None:
    from bench.peer.case import Case

    assert isinstance(case, Case)
    document = yaml.safe_load(case.config(URL))
    assert document["config_paths"] == list(case.configs)
    assert document["compose"]["runtime"] == "nemo-gym"
    assert ("servers" in document["compose"]) == bool(case.files or case.writable)
    assert len(document) == 8 + len(case.define) + len(case.files)
    assert yaml.safe_load(case.config(URL, [EXAMPLE]))["config_paths"] == [EXAMPLE]
    assert all(override.startswith("++") and "=" in override for override in case.overrides(URL))


def test_the_page_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    good = Line.of(Outcome("a/one", ready=True, ready_seconds=12.34, rollout=True))
    waits = Line.of(Outcome("a/two", ready=True, ready_seconds=9.0, rollout=False, writable=True, reason="waits | for a judge"))
    bad = Line.of(Outcome("a/three", reason="x"))
    page = tmp_path / "page.md"
    page.write_text(text({"a/one": good, "a/two": waits, "a/three": bad}, ["a/one", "a/two", "a/three", "a/four"]))
    assert "**2 of 4 servers ready, 1 rollouts**; 1 with a writable root." in page.read_text()
    found = read(page)
    assert found == {"a/one": good, "a/two": waits, "a/three": bad}
    assert found["a/two"].reason == "waits / for a judge"
    assert "| a/four | not run |" in page.read_text()
    assert read(tmp_path / "none") == {}


@pytest.mark.parametrize(
    ("before", "after", "is_lost"),
    [
        (Line("1.0 s", "yes", "", ""), Line("2.0 s", "yes", "", ""), False),
        (Line("1.0 s", "yes", "", ""), Line("2.0 s", "no", "", ""), True),
        (Line("1.0 s", "", "", ""), Line("no", "", "", ""), True),
        (Line("no", "", "", ""), Line("no", "", "", ""), False),
        (Line("1.0 s", "no", "", ""), Line("1.0 s", "no", "", ""), False),
    ],
)
def test_what_used_to_work(before: Line, after: Line, is_lost: bool) -> None:
    assert lost({"a": before}, {"a": after, "new": after}) == (["a"] if is_lost else [])


def test_comparisons_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    equal, differs = Compared("beside/one", 8), Compared("beside/two", 8, ("record 0-0.reward: 0.0 where NeMo Gym has 1.0",))
    page = tmp_path / "page.md"
    page.write_text(text({}, ["a/one"], [equal, differs]))
    assert read_compared(page) == {"beside/one": equal, "beside/two": differs}
    assert read(page) == {}
    assert read_compared(tmp_path / "none") == {}
