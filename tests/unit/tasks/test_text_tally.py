"""How many texts and how many different ones, by dataset and altogether."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gym_compose.tasks import text_tally
from gym_compose.tasks.text_tally import TextTally

TEXTS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["k", "l"]), st.sampled_from(["a", "b", "c" * 65, "d" * 70]) | st.text()), max_size=30
)


@settings(deadline=None, max_examples=50)  # a small buffer writes 64 files again and again
@given(TEXTS, st.sampled_from([12, 50, 10_000]), st.integers(1, 3))
def test_it_counts_as_sets_do(texts: list[tuple[int, str, str]], buffered: int, times: int) -> None:
    apart: dict[tuple[int, str], list[str]] = defaultdict(list)
    together: dict[str, list[str]] = defaultdict(list)
    with TextTally(buffered=buffered) as tally:
        for dataset, key, text in texts:
            tally.observe(dataset, key, text, times)
            apart[dataset, key].append(text)
            together[key].append(text)
        by_dataset, overall = tally.summaries()

    def counted(found: list[str]) -> dict[str, int]:
        return {"unique_count": len(set(found)), "total_count": len(found) * times}

    assert {(dataset, key): value for dataset, keys in by_dataset.items() for key, value in keys.items()} == {
        place: counted(found) for place, found in apart.items()
    }
    assert overall == {key: counted(found) for key, found in together.items()}


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_tally, "_SEEN", 2)
    with TextTally() as tally:
        for text in "abcabcabc":
            tally.observe(0, "k", text)
        assert tally.summaries()[1] == {"k": {"unique_count": 3, "total_count": 9}}
