"""The migration script over the peer's own configs, with and without their environment servers: it and the parser agree file by file."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from gym_compose.config.errors import AgentWithoutEnvironmentServerError, ConfigError
from gym_compose.config.load import load_config
from gym_compose.config.ports import offline
from gym_compose.tasks import add_legacy_agent_environment_servers as script

CHECK_SECONDS = 15.0
"""CPU that all of the peer's configs may take: 1.3 s on a quiet machine; some machines are three times as slow at times."""


def unfronted(path: Path, root: Path) -> set[str] | None:
    """The agents that the parser misses a server for when it loads one file; None where it refuses the file for another reason."""
    overrides: dict[str, Any] = {"config_paths": [str(path.relative_to(root))], "error_on_agent_without_environment_server": True}
    try:
        load_config(overrides, cwd=root, environ={}, ports=offline(), install_root=root)
    except AgentWithoutEnvironmentServerError as error:
        return {line.removeprefix("- ") for line in error.details}
    except ConfigError:
        return None
    return set()


def without_servers(path: Path, root: Path) -> dict[str, Any] | str:
    """What a file comes to with a model and without environment servers, or the class of the error that it comes to."""
    model = {"policy_model": {"responses_api_models": {"openai_model": {"entrypoint": "app.py"}}}}
    try:
        config = load_config(
            {"config_paths": [str(path.relative_to(root))], **model}, cwd=root, environ={}, ports=offline(), install_root=root
        )
    except ConfigError as error:
        return type(error).__name__
    names = {instance.name for instance in config.instances}
    blocks = {name: block for name, block in config.resolved.items() if name in names and "environment_servers" not in block}
    for block in blocks.values():  # ports are given out in the order of the instances
        for implementations in block.values():
            for fields in implementations.values():
                fields.pop("port", None)
    return blocks


@pytest.fixture(scope="module")
def stripped(peer_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the peer's configs without any environment server."""
    root = tmp_path_factory.mktemp("peer")
    for path in (path for component in script.components(peer_root) for path in script.files(component)):
        copy = root / path.relative_to(peer_root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        data = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader) or {}
        kept = {key: block for key, block in data.items() if not isinstance(block, dict) or "environment_servers" not in block}
        if kept == data:
            shutil.copy(path, copy)
        else:
            copy.write_text(yaml.safe_dump(kept, sort_keys=False), encoding="utf-8")
    return root


def test_the_shipped_configs_need_nothing(peer_root: Path) -> None:
    began = time.process_time()
    report = script.migrate(script.components(peer_root), [peer_root], check=True)
    assert (report.exit_code, report.changes, report.unreadable) == (0, [], [])
    assert time.process_time() - began < CHECK_SECONDS


@pytest.mark.slow
def test_script_and_parser_find_the_same_and_migrating_leaves_nothing(stripped: Path) -> None:
    files = [path for component in script.components(stripped) for path in script.files(component)]
    assert len(files) > 900
    before = {path: unfronted(path, stripped) for path in files[::2]}
    index = script.Index([document for path in files if (document := script.read(path)) is not None])
    wanted = {document.path: {agent.name for agent in index.generating(document)} for document in index.documents}
    for document in index.documents:
        found = before.get(document.path)
        if found is None:
            continue
        # A file is loaded with what it includes: what is missing there is missing here, unless a block of this file takes the agent over.
        together = set(wanted[document.path]).union(*(wanted[other.path] for other in index.reach(document)))
        assert bool(found) == bool(together - document.moved), document.path
        assert found <= together, document.path
    assert sum(bool(found) for found in before.values()) > 200
    shutil.copytree(stripped, stripped / "migrated")
    root = stripped / "migrated"
    assert script.migrate(script.components(root), [root], check=False).exit_code == 0
    assert script.migrate(script.components(root), [root], check=True).exit_code == 0
    for path in [path for path, found in before.items() if found][::3]:
        assert not unfronted(root / path.relative_to(stripped), root), path
    for path in files[::8]:
        assert without_servers(path, stripped) == without_servers(root / path.relative_to(stripped), root), path
