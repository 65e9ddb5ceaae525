"""The stream of messages."""

from __future__ import annotations

import io
import os
from typing import TextIO, cast

from gym_compose.cli.console import Console
from gym_compose.cli.messages import MessageStream


def test_messages_arrive() -> None:
    under = io.StringIO()
    stream = MessageStream(under)
    print("one", file=cast("TextIO", stream), flush=True)
    assert under.getvalue() == "one\n"
    assert not stream.isatty()


def test_a_reader_that_has_gone_ends_nothing() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", closefd=True) as pipe:
        console = Console.of({}, stdout=io.StringIO(), stderr=pipe)
        for _ in range(3):
            console.err("x" * 100_000)
        console.table(("a",), (("b",),), stream=console.stderr)
        console.rich(console.stderr).print("rich too")
        pipe.flush()
