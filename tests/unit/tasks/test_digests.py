"""Records by digest: every one comes back, whether they fitted into memory or not; the files are gone afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gym_compose.tasks.digests import DigestSpool
from gym_compose.tasks.errors import DatasetError


@settings(deadline=None, max_examples=50)  # a small buffer writes 64 files again and again
@given(st.lists(st.binary(min_size=3, max_size=3), max_size=40), st.sampled_from([1, 30, 10_000]))
def test_equal_records_share_a_bucket_and_keep_their_order(records: list[bytes], buffered: int) -> None:
    with DigestSpool(3, buffered=buffered) as spool:
        for record in records:
            spool.add(record)
        buckets = [list(bucket) for bucket in spool.buckets()]
    assert sorted(record for bucket in buckets for record in bucket) == sorted(records)
    for bucket in buckets:
        assert bucket == [record for record in records if record in set(bucket)]


@pytest.mark.parametrize("buffered", [8, 1_000_000])
def test_files_exist_only_beyond_the_buffer_and_only_as_long_as_the_spool(tmp_path: Path, buffered: int) -> None:
    with DigestSpool(4, tmp_path, buffered=buffered) as spool:
        for number in range(10):
            spool.add(number.to_bytes(4, "little"))
        assert bool(list(tmp_path.iterdir())) is (buffered == 8)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_takes_no_files_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with DigestSpool(3, gone, buffered=1) as spool, pytest.raises(DatasetError, match=f"{gone}: the digests of the rows cannot be kept"):
        spool.add(b"abc")
