"""Which images the peer's own server directories need (contract-servers 0, 7.4; docs/nemo-gym.md, "How many images")."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gym_compose.compiler.assets import read_assets
from gym_compose.compiler.errors import SourceError
from gym_compose.compiler.peer_lines import PeerLines, parse_lock, peer_lines
from gym_compose.config.model import ClassFlags, ServerManifest, ServerSource
from gym_compose.config.requirements import (
    computes_dependencies,
    override_lines,
    requirement_file,
    requirement_lines,
    requirement_places,
    runtime_extras,
    split_runtime,
    unindexed_dependencies,
)
from gym_compose.config.sources import source_files
from gym_compose.wire.names import SERVER_TYPES

ROOT = Path(__file__).resolve().parents[2]


def source_of(kind: str, directory: Path) -> ServerSource:
    file = requirement_file(directory)
    assert file is not None
    written = requirement_lines(file)
    return ServerSource(
        server_type=kind,  # type: ignore[arg-type]  # of SERVER_TYPES
        implementation=directory.name,
        directory=str(directory),
        origin="wheel",
        runtime="nemo-gym",
        requirement_lines=split_runtime(written, file)[1],
        files=tuple(source_files(directory)),
        flags=ClassFlags(),
        manifest=ServerManifest(),
        extras=runtime_extras(written),
        overrides=override_lines(directory),
        unindexed=unindexed_dependencies(file) if file.name == "pyproject.toml" else (),
        computed=("pyproject.toml", "setup.py") if file.name == "pyproject.toml" and computes_dependencies(file) else (),
        places=requirement_places(file),
    )


@pytest.fixture(scope="module")
def sources(peer_root: Path) -> list[ServerSource]:
    directories = [(kind, directory) for kind in SERVER_TYPES for directory in sorted((peer_root / kind).iterdir())]
    return [source_of(kind, directory) for kind, directory in directories if directory.is_dir() and requirement_file(directory)]


@pytest.fixture(scope="module")
def needed(sources: list[ServerSource]) -> tuple[Counter[PeerLines], dict[str, str]]:
    """(directories by what they need besides the plain packages, reason by directory that no image of ours can serve)."""
    assets = read_assets(ROOT)
    locks = {extra: parse_lock(assets[f"images/nemo-gym/0.7.0{extra}.txt"]) for extra in ("", "-sandbox")}
    sets: Counter[PeerLines] = Counter()
    refused: dict[str, str] = {}
    for source in sources:
        try:
            sets[peer_lines(source.implementation, source, locks["-sandbox" if "sandbox" in source.extras else ""], "3.13.14")[0]] += 1
        except SourceError as error:
            refused[source.implementation] = error.message
    return sets, refused


def test_the_directories_make_96_sets_as_read(sources: list[ServerSource]) -> None:
    """The contract counts 97. Here a line that names NeMo Gym itself is not part of the text, so its spellings make no difference."""
    assert len(sources) == 215
    assert len({(frozenset(source.requirement_lines), source.extras, source.overrides) for source in sources}) == 96


def test_the_plain_packages_serve_104_and_with_sandbox_126(needed: tuple[Counter[PeerLines], dict[str, str]]) -> None:
    sets, _ = needed
    plain, sandbox = sets[PeerLines()], sets[PeerLines(extras=("sandbox",))]
    assert (plain, plain + sandbox) == (104, 126)


def test_77_effective_sets_become_images_and_two_directories_are_refused(needed: tuple[Counter[PeerLines], dict[str, str]]) -> None:
    """78 in the contract, which counts the directories that are refused here too."""
    sets, refused = needed
    assert (len(sets), sum(sets.values())) == (77, 213)
    assert sorted(refused) == ["code_fim", "verifiers_agent"]
    assert sorted(needs.computed for needs in sets if needs.computed) == [
        "responses_api_models/genrm_model",
        "responses_api_models/local_vllm_model",
    ]


def test_what_is_refused_says_why(needed: tuple[Counter[PeerLines], dict[str, str]]) -> None:
    _, refused = needed
    assert "human-eval-infilling, and [tool.uv.sources] takes it from git" in refused["code_fim"]
    assert "may be a stranger's" in refused["code_fim"]
    assert "requirements.txt:3 is an option" in refused["verifiers_agent"]
