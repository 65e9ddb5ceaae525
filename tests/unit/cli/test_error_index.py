"""``docs/errors.md`` is the index of all errors: every class has its row and its exit code, and every row has its class."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import gym_compose
from gym_compose.wire.errors import GymComposeError, UsageError

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"^\| `(\w+)`(?: \(ours\))? \| ([\d, ]+) \| (.+) \| (.+) \|$")
BASES = {"GymComposeError"}


def classes() -> dict[str, set[type[GymComposeError]]]:
    """Every subclass that a module of the package defines, by name."""
    for module in pkgutil.walk_packages(gym_compose.__path__, "gym_compose."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found: dict[str, set[type[GymComposeError]]] = defaultdict(set)
    for cls in _below(GymComposeError):
        if cls.__module__.startswith("gym_compose."):
            found[cls.__name__].add(cls)
    return found


def rows() -> dict[str, tuple[set[int], str, str]]:
    found: dict[str, tuple[set[int], str, str]] = {}
    for line in (ROOT / "docs" / "errors.md").read_text(encoding="utf-8").splitlines():
        match = ROW.match(line)
        if match:
            assert match[1] not in found, f"two rows for {match[1]}"
            found[match[1]] = ({int(code) for code in match[2].split(",")}, match[3].strip(), match[4].strip())
    return found


def _below(cls: type[GymComposeError]) -> Iterator[type[GymComposeError]]:
    for child in cls.__subclasses__():
        yield child
        yield from _below(child)


def test_every_class_has_one_row_with_its_exit_code() -> None:
    known, listed = classes(), rows()
    assert sorted(set(known) - set(listed)) == [], "not in docs/errors.md"
    assert sorted(set(listed) - set(known)) == [], "in docs/errors.md only"
    for name, (codes, when, todo) in listed.items():
        assert codes == {cls.exit_code for cls in known[name]}, name
        assert when
        assert todo


def test_every_class_says_what_it_is() -> None:
    for name, found in classes().items():
        for cls in found:
            assert cls.__doc__, name
            assert name.endswith("Error")


def test_usage_is_told_as_the_page_says() -> None:
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    for name, found in classes().items():
        if any(issubclass(cls, UsageError) for cls in found):
            assert f"`{name}`" in text.partition("## The config language")[0]


def test_the_readme_links_the_pages_that_there_are() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\((docs/[\w-]+\.md)\)", text)
    assert {"docs/errors.md", "docs/precedence.md", "docs/commands.md", "docs/figures.md"} <= set(linked)
    assert [page for page in linked if not (ROOT / page).is_file()] == []
