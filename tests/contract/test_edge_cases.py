"""``edge_cases.csv`` says which tests cover each edge case of the data contract (its section 6); what it names is there.

Where we differ from NeMo Gym on purpose (docs/differences.md), the tests are of our behaviour, and of its own under strict compatibility
where that has it.
"""

from __future__ import annotations

import ast
import csv
import os
import re
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("edge_cases.csv")
CONTRACT = Path(os.environ.get("GYM_COMPOSE_CONTRACT", ROOT.parent / "shared" / "contract")) / "contract-data.md"
NUMBERS = range(1, 88)


def table() -> list[dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


@lru_cache(maxsize=64)
def names_of(file: str) -> frozenset[str]:
    """The tests of a file as pytest names them, without parameters; those that are always skipped are none."""
    return frozenset(_names(ast.parse((ROOT / file).read_text(encoding="utf-8")), ""))


def _names(holder: ast.Module | ast.ClassDef, prefix: str) -> list[str]:
    found = []
    for node in holder.body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test") and not _skipped(node):
            found += _names(node, f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_") and not _skipped(node):
            found.append(f"{prefix}{node.name}")
    return found


def _skipped(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    marks = [ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list]
    return any(mark in ("pytest.mark.skip", "pytest.mark.xfail") for mark in marks)


def test_every_case_has_a_line_and_each_line_tests() -> None:
    rows = table()
    assert [int(row["case"]) for row in rows] == list(NUMBERS)
    assert [row["case"] for row in rows if not row["what"] or not row["tests"]] == []


@pytest.mark.parametrize("row", table(), ids=lambda row: row["case"])
def test_the_tests_of_a_case_exist(row: dict[str, str]) -> None:
    for name in row["tests"].split():
        file, _, test = name.partition("::")
        assert Path(file).parts[0] in ("tests", "servers"), f"{name} is not where pytest collects"
        assert (ROOT / file).is_file(), f"{file} is gone"
        assert test in names_of(file), f"there is no {name}"


def test_the_contract_has_these_cases() -> None:
    if not CONTRACT.is_file():
        pytest.skip(f"{CONTRACT} is not there")
    section = CONTRACT.read_text(encoding="utf-8").partition("\n## 6. ")[2].partition("\n## 7. ")[0]
    assert [int(number) for number in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)] == list(NUMBERS)
