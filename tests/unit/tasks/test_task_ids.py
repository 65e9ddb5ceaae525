"""The first row whose id was there before, found in bounded memory."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gym_compose.tasks.task_ids import Place, TaskIds


@settings(deadline=None, max_examples=50)  # a small buffer writes 64 files again and again
@given(st.lists(st.tuples(st.sampled_from(["t", "u"]), st.text(max_size=2)), max_size=30), st.sampled_from([28, 100, 10_000]))
def test_it_is_the_one_that_a_set_finds(rows: list[tuple[str, str]], buffered: int) -> None:
    known: dict[tuple[str, str], int] = {}
    again = []
    for line, row in enumerate(rows, 1):
        if row in known:
            again.append((known[row], line))
        else:
            known[row] = line
    with TaskIds(buffered=buffered) as ids:
        for line, (taskset, task_id) in enumerate(rows, 1):
            ids.add(taskset, task_id, Place(0, line))
        found = ids.duplicate()
    if not again:
        assert found is None
    else:
        assert found is not None
        assert ((found.first.line, found.again.line), found.further) == (again[0], len(again) - 1)


def test_a_taskset_and_an_id_do_not_run_into_each_other() -> None:
    with TaskIds() as ids:
        ids.add("ab", "c", Place(0, 1))
        ids.add("a", "bc", Place(0, 2))
        assert ids.duplicate() is None


def test_the_dataset_comes_before_the_line() -> None:
    with TaskIds() as ids:
        for place in (Place(0, 9), Place(1, 1), Place(1, 2)):
            ids.add("t", "x", place)
        found = ids.duplicate()
    assert found is not None
    assert (found.first, found.again, found.further) == (Place(0, 9), Place(1, 1), 1)
