"""Reading Python files as syntax trees, from any number of threads."""

from __future__ import annotations

import ast
import threading

_ONE_AT_A_TIME = threading.Lock()
"""CPython up to 3.12 keeps the depth of all trees that are being made in one place: two threads fail with "SystemError: AST constructor
recursion depth mismatch" (python/cpython issue 106905; seen with 3.11.7). Python 3.13 as the oldest version may retire it."""


def parse(source: bytes, name: str) -> ast.Module:
    """The syntax tree of a file's bytes; ``name`` stands in errors. Raises SyntaxError, ValueError."""
    with _ONE_AT_A_TIME:
        return ast.parse(source, name)
