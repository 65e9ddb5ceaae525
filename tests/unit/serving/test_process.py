"""The process around a server: prefixed lines, open files."""

from __future__ import annotations

import io
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.serving.process import PrefixedStream, listen, raise_open_files
from gym_compose.wire.errors import PrerequisiteError

texts = st.lists(st.text(alphabet="ab\n", max_size=6), max_size=12)


@given(texts)
def test_every_line_has_the_prefix_and_nothing_else_changes(parts: list[str]) -> None:
    under = io.StringIO()
    stream = PrefixedStream(under, "(x) ")
    for part in parts:
        assert stream.write(part) == len(part)
    whole = "".join(parts)
    ends = whole.endswith("\n")
    lines = whole.split("\n")[: -1 if ends else None] if whole else []
    assert under.getvalue() == "\n".join(f"(x) {line}" for line in lines) + ("\n" if ends else "")


def test_other_attributes_are_the_streams_own() -> None:
    under = io.StringIO()
    stream = PrefixedStream(under, "(x) ")
    stream.writelines(["a\n", "b"])
    assert under.getvalue() == "(x) a\n(x) b"
    assert stream.isatty() is False


@pytest.mark.parametrize(
    ("limits", "wanted", "new", "warned"),
    [
        ((1024, 4096), 2048, (2048, 4096), False),
        ((1024, 1500), 2048, (1500, 1500), True),
        ((1024, resource.RLIM_INFINITY), 2048, (2048, resource.RLIM_INFINITY), False),
        ((4096, 4096), 2048, None, False),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 2048, None, False),
    ],
)
def test_the_soft_limit_of_open_files(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    limits: tuple[int, int],
    wanted: int,
    new: tuple[int, int] | None,
    warned: bool,
) -> None:
    done: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, value: done.append(value))
    raise_open_files(wanted)
    assert done == ([] if new is None else [new])
    assert ("hard limit is lower" in caplog.text) is warned


def test_a_name_without_an_address_is_refused() -> None:
    with pytest.raises(PrerequisiteError, match=r"address no-such-host\.invalid:1: the name has no address here"):
        listen("no-such-host.invalid", 1)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_listening_on_a_free_port(host: str) -> None:
    with listen(host, 0) as listener:
        assert listener.getsockname()[1] > 0
