"""Python files are read from many threads at once."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from gym_compose.config import syntax

SOURCE = ("x = " + "(" * 40 + "1" + ")" * 40 + "\n" + "def f(a):\n    return [b for b in a if b]\n" * 200).encode()


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
def test_many_threads_read_files_at_once() -> None:
    with ThreadPoolExecutor(8) as pool:
        trees = list(pool.map(lambda number: syntax.parse(SOURCE, f"{number}.py"), range(40)))
    assert {len(tree.body) for tree in trees} == {201}
    assert all(isinstance(tree, ast.Module) for tree in trees)


def test_what_is_no_python_names_the_line() -> None:
    with pytest.raises(SyntaxError) as caught:
        syntax.parse(b"a = 1\nb = (\n", "app.py")
    assert (caught.value.filename, caught.value.lineno) == ("app.py", 2)
