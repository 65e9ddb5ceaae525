"""How long configs take that were not written for us: NeMo Gym's own, out of its wheel (issue 4). Skipped, with the reason, without it."""

from __future__ import annotations

import gzip
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure
from bench.gym import Gym
from gym_compose.config import ConfigError, resolve_config
from gym_compose.project.directory import ProjectDirectory
from gym_compose.project.source import ProjectSource, Selection
from gym_compose.wire.settings import Settings

REPOSITORY = Path(__file__).resolve().parents[1]
PEER_SECONDS = 5.7
"""``gym env resolve`` of the two files below by NeMo Gym itself, at best (platform.md)."""
TWO_FILES = (
    "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml",
    "responses_api_models/openai_model/configs/openai_model.yaml",
)
LARGEST = "benchmarks/nemotron_3.5_super/eval_container_config_with_staged.yaml"
POLICY = ("++policy_base_url=http://model.invalid/v1", "++policy_api_key=k", "++policy_model_name=m")
RUNS = 5


def figures(gym: Gym) -> Iterator[Figure]:
    """Whole processes for the command, this process for the library."""
    peer = _peer_root()
    if peer is None:
        print(
            "config figures: skipped, no unpacked nemo-gym wheel (GYM_COMPOSE_PEER_ROOT, or .cache/peer after make test)", file=sys.stderr
        )
        return
    files = [argument for name in TWO_FILES for argument in ("--config", name)]
    yield Figure(
        "gym env resolve of two of NeMo Gym's files",
        _median(lambda: gym.run("env", "resolve", *files, "--search-dir", str(peer), *POLICY)),
        "s",
        PEER_SECONDS / 10,
        PEER_SECONDS,
        "target: a tenth of the peer's best",
    )
    yield _servers(peer, gym.cwd)
    yield from _largest(peer, gym.cwd)
    golden = Path(os.environ.get("GYM_COMPOSE_GOLDEN", REPOSITORY.parent / "shared" / "golden")) / "configs.jsonl.gz"
    if golden.is_file():
        yield _golden(golden, peer, gym.cwd)
    else:
        print(f"golden figures: skipped, no {golden}", file=sys.stderr)


def _peer_root() -> Path | None:
    given = os.environ.get("GYM_COMPOSE_PEER_ROOT")
    root = Path(given).resolve() if given else REPOSITORY / ".cache" / "peer"
    return root if (root / "nemo_gym").is_dir() else None


def _servers(peer: Path, cwd: Path) -> Figure:
    """Each config of a resources server, merged with a model as a user would; one that is an error by design counts as well."""
    model = TWO_FILES[1]
    files = sorted(str(path.relative_to(peer)) for path in peer.glob("resources_servers/*/configs/**/*.yaml"))
    started = time.perf_counter()
    errors = sum(_ends_in_error(peer, cwd, file, model) for file in files)
    note = f"each for itself, with a model server; {errors} end in the error that NeMo Gym gives"
    return Figure(f"all {len(files)} configs of resources servers merged", time.perf_counter() - started, "s", 4.0, note=note)


def _ends_in_error(peer: Path, cwd: Path, *files: str) -> bool:
    try:
        resolve_config([f"+config_paths=[{','.join(files)}]", *POLICY], cwd=cwd, environ={}, roots=[peer])
    except ConfigError:
        return True
    return False


def _largest(peer: Path, cwd: Path) -> Iterator[Figure]:
    """From files to a merged config and the sources of its servers; and from there to a compose file."""
    selection = Selection((f"+config_paths=[{LARGEST}]", *POLICY), cwd, {}, roots=(peer,))
    settings = Settings.from_environ({})

    def load() -> ProjectSource:
        return ProjectSource.load(selection, target="docker", settings=settings)

    loaded = load()
    directory = ProjectDirectory.under(cwd, loaded.name)

    def compile_and_render() -> None:
        loaded.files(loaded.compile(directory, head_port=0, session_key=None), directory)

    servers = len(loaded.config.instances)
    yield Figure(
        f"largest shipped config ({servers} servers) to its compose file",
        _median(lambda: _seconds(compile_and_render)) * 1000,
        "ms",
        300,
        note="compile and render",
    )
    yield Figure("the same, merged and its server directories read", _median(lambda: _seconds(load)) * 1000, "ms")


def _golden(golden: Path, peer: Path, cwd: Path) -> Figure:
    with gzip.open(golden, "rt", encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    started = time.perf_counter()
    equal = sum(_error_of(case, peer, cwd) == case.get("error") for case in cases)
    seconds = time.perf_counter() - started
    note = f"{equal} end as NeMo Gym's do; make test compares the configs"
    return Figure(f"all {len(cases)} golden configs in one process", seconds, "s", 30.0, note=note)


def _error_of(case: dict[str, Any], peer: Path, cwd: Path) -> str | None:
    try:
        resolve_config(case["argv"], cwd=cwd, environ={}, roots=[peer], hide_secrets=True)
    except ConfigError as error:
        return type(error).__name__
    return None


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _median(measure: Callable[[], float]) -> float:
    measure()  # the first one may read cold files
    return statistics.median(measure() for _ in range(RUNS))
