from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gym_compose.tasks.table import Counters, IndexTable, PairTable

KEYS = st.integers(min_value=0, max_value=2**64 - 1)
FEW = st.integers(min_value=0, max_value=40)


@given(st.lists(st.one_of(FEW, KEYS), max_size=300))
def test_an_index_numbers_keys_as_a_dict_does(keys: list[int]) -> None:
    table = IndexTable()
    known: dict[int, int] = {}
    for key in keys:
        assert table.get(key) == known.get(key)
        assert table.setdefault(key, len(table)) == known.setdefault(key, len(known))
    assert len(table) == len(known)
    assert {key: table.get(key) for key in keys} == {key: known[key] for key in keys}


def test_an_index_grows_and_forgets_nothing() -> None:
    table = IndexTable()
    for number in range(20_000):
        table.setdefault(number * 7919, number)
    assert all(table.get(number * 7919) == number for number in range(20_000))
    assert table.get(1) is None


@given(st.lists(st.tuples(st.integers(), st.integers(min_value=-2, max_value=2**33)), max_size=60))
def test_pairs_of_any_numbers_are_told_apart(pairs: list[tuple[int, int]]) -> None:
    table = PairTable()
    known: dict[tuple[int, int], int] = {}
    for pair in pairs:
        assert table.setdefault(*pair, len(table)) == known.setdefault(pair, len(known))
    assert {pair: table.get(*pair) for pair in pairs} == {pair: known[pair] for pair in pairs}
    assert len(table) == len(known)


@given(st.lists(st.one_of(FEW, st.integers(), st.integers(min_value=2**18 - 3, max_value=2**19 + 3)), max_size=200))
def test_counters_count_any_index(indices: list[int]) -> None:
    counters = Counters()
    known: Counter[int] = Counter()
    for index in indices:
        assert counters.next(index) == known[index]
        known[index] += 1
