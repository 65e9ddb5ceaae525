"""What the README and the pages in docs/ say can be done, and where their links lead."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from gym_compose import resolve_command

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"^    ((?:[A-Z_]+=\S+ )*(?:make|gym|gym-compose|docker compose) .+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def commands(program: str) -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for line in COMMAND.findall(page.read_text(encoding="utf-8")):
            words = shlex.split(line, comments=True)
            while "=" in words[0]:
                words.pop(0)
            if words[0] == program:
                found.append((page.name, shlex.join(words)))
    return found


def test_there_are_commands_to_look_at() -> None:
    assert {page for page, _ in commands("make")} >= {"README.md"}
    assert {page for page, _ in commands("gym")} >= {"README.md"}


@pytest.mark.parametrize(("page", "line"), commands("make"))
def test_every_make_target_that_is_named_exists(page: str, line: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert shlex.split(line)[1] in targets


@pytest.mark.parametrize(("page", "line"), [*commands("gym"), *commands("gym-compose")])
def test_every_gym_command_that_is_named_is_understood(page: str, line: str) -> None:
    resolved = resolve_command(shlex.split(line)[1:], cwd=ROOT, environ={}, roots=(ROOT, ROOT / "servers"))
    assert resolved.exit in (None, 0), resolved.message


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    targets = [target for target in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []
