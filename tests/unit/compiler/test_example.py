"""``compose/example/compose.yaml`` is what the quickstart compiles to. After a change: GYM_COMPOSE_UPDATE_EXAMPLE=1 pytest THIS FILE."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from gym_compose.compiler import HostFile, compile, read_host_files, render, wanted_files
from gym_compose.config import find_sources, load_config
from gym_compose.config.ports import fixed
from gym_compose.config.sources import search_roots

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "compose" / "example" / "compose.yaml"


def quickstart(options: Any) -> str:
    """compose.yaml of configs/quickstart.yaml. Digests are cut: they change with every edit of gym_compose or a server."""
    config = load_config(["+config_paths=[configs/quickstart.yaml]"], cwd=ROOT, environ={}, ports=fixed(8000))
    roots = search_roots(ROOT, {}, native_root=ROOT / "servers")
    sources = find_sources(config, roots)
    wanted = wanted_files(config, sources)
    # A fresh checkout has no generated data yet: what is missing is taken as it would be found.
    files = {path: HostFile(str(ROOT / "servers" / path), "0" * 64) for path in wanted} | read_host_files(wanted, [ROOT / "servers"])
    chosen = options(project="quickstart", directory="/home/me/gym/.gym/quickstart", files=files, head_port=11000)
    rendered = render(compile(config, sources, chosen), chosen.assets, chosen.directory)
    (content,) = [file.content for file in rendered if file.path == "compose.yaml"]
    assert content is not None
    text = content.decode("ascii").replace(str(ROOT), "/home/me/gym")
    return re.sub(r'(slice-sha256": ")[0-9a-f]{64}', r"\1<sha256>", re.sub(r"(gym-compose/[a-z0-9-]+:)[0-9a-f]{12}", r"\1<key>", text))


def test_the_checked_in_example_is_what_the_quickstart_compiles_to(make_options: Any) -> None:
    text = quickstart(make_options)
    if os.environ.get("GYM_COMPOSE_UPDATE_EXAMPLE") == "1":
        EXAMPLE.parent.mkdir(exist_ok=True)
        EXAMPLE.write_text(text, encoding="ascii")
    assert EXAMPLE.read_text(encoding="ascii") == text
