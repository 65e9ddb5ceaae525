"""A call when a module is imported, whoever imports it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gym_compose.serving.on_import import on_import


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    directory = tmp_path / "awaited_package"
    directory.mkdir()
    (directory / "__init__.py").write_text("")
    (directory / "inner.py").write_text("VALUE = 1\ndef read():\n    return VALUE\n")
    (directory / "broken.py").write_text("raise LookupError('no')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(sys.meta_path)
    yield directory.name
    sys.meta_path[:] = before
    for name in [name for name in sys.modules if name.split(".")[0] == directory.name]:
        del sys.modules[name]


def test_the_call_comes_after_the_module_ran_and_before_its_importer_goes_on(package: str) -> None:
    def change(module: Any) -> None:
        module.VALUE += 1

    on_import(f"{package}.inner", change)
    module = importlib.import_module(f"{package}.inner")
    assert module.read() == 2
    assert importlib.import_module(f"{package}.inner").read() == 2  # once


def test_a_module_that_is_there_already_gets_it_at_once(package: str) -> None:
    module = importlib.import_module(f"{package}.inner")
    seen: list[ModuleType] = []
    on_import(f"{package}.inner", seen.append)
    assert seen == [module]


def test_others_are_left_alone_and_what_fails_to_import_fails_as_before(package: str) -> None:
    seen: list[ModuleType] = []
    on_import(f"{package}.broken", seen.append)
    assert importlib.import_module(f"{package}.inner").read() == 1
    with pytest.raises(LookupError):
        importlib.import_module(f"{package}.broken")
    on_import(f"{package}.nowhere", seen.append)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{package}.nowhere")
    assert seen == []


def test_the_source_stays_readable_for_tracebacks(package: str) -> None:
    on_import(f"{package}.inner", lambda module: None)
    module: Any = importlib.import_module(f"{package}.inner")
    assert "VALUE = 1" in module.__spec__.loader.get_source(module.__name__)
