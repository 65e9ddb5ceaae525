"""NeMo Gym's own four-server example in our images, beside what it takes by itself: time to ready, memory, disk, after a one-line edit.

The servers are those of the unpacked wheel, unmodified. The peer's start and memory are of the same run (``peer_start``); its disk, which
takes minutes and 5 GB to make, is what platform.md recorded, and marked so.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import docker

from bench.figure import Figure, used_memory
from bench.gym import Gym
from bench.mock import mock
from bench.peer_start import measure
from gym_compose.engine.docker.build import own_bytes
from gym_compose.project.assets import root
from gym_compose.project.ports import free_port
from gym_compose.wire.names import LABEL_PROJECT, LABEL_ROLE

PROJECT = "bench-peer-runtime"
FILES = (
    "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml",
    "responses_api_models/openai_model/configs/openai_model.yaml",
)
EDITED = "resources_servers/example_single_tool_call"
UP_RUNS = 2
GIGABYTE = 1e9


PEER_DISK_BYTES = 1.86e9 + 2.8e9  # platform.md: its image, and four virtual environments


def figures(gym: Gym) -> Iterator[Figure]:
    """Nothing where there is no unpacked wheel or no mock of a model endpoint."""
    wheel, tools = peer_root(), shared_tools()
    if wheel is None or tools is None:
        print(
            "figures of NeMo Gym's own servers: skipped, no unpacked wheel (GYM_COMPOSE_PEER_ROOT, or .cache/peer after make test) or no "
            "tools/mock_openai.py (GYM_COMPOSE_SHARED)",
            file=sys.stderr,
        )
        return
    client = docker.from_env()
    try:
        with mock(tools) as url:
            yield from _measured(gym, wheel, url, client)
    finally:
        gym.run("compose", "down", "-p", PROJECT)
        client.close()


def _measured(gym: Gym, wheel: Path, url: str, client: Any) -> Iterator[Figure]:
    options = ["-p", PROJECT, "--search-dir", str(wheel)]
    selection = [*policy(url), "++compose.runtime=nemo-gym", *options, *(argument for name in FILES for argument in ("--config", name))]
    gym.run("compose", "build", *selection)
    seconds = []
    for run in range(UP_RUNS):
        if run:
            gym.run("compose", "down", "-p", PROJECT)
        seconds.append(gym.run("compose", "up", "-d", *selection))
    containers = list(client.containers.list(filters={"label": f"{LABEL_PROJECT}={PROJECT}"}))
    memory = sum(used_memory(container.stats(stream=False, one_shot=True)) for container in containers)
    disk = disk_bytes([container.image.attrs for container in containers], [image.attrs for image in client.images.list()])
    edited = _edit(gym, wheel, selection)
    gym.run("compose", "down", "-p", PROJECT)
    server = next(container.image.id for container in containers if container.labels.get(LABEL_ROLE) == "server")
    print("starting the same with NeMo Gym's own command", file=sys.stderr, flush=True)
    peer_seconds, peer_memory = measure(
        client, server, [f"+config_paths=[{','.join(FILES)}]", *policy(url), f"++head_server.port={free_port()}"]
    )
    yield Figure(
        "warm up -d of NeMo Gym's own 4 servers", min(seconds), "s", None, peer_seconds, "peer: its own start in one container, this run"
    )
    yield Figure(
        "memory of the same, head server too", memory / GIGABYTE, "GB", None, peer_memory / GIGABYTE, "peer: with its Ray, this run"
    )
    yield Figure(
        "disk of the same", disk / GIGABYTE, "GB", None, PEER_DISK_BYTES / GIGABYTE, "images; peer: image and environments, RECORDED"
    )
    yield Figure(
        "one-line edit of one of them, up -d again",
        edited,
        "s",
        None,
        peer_seconds,
        "the others keep running; peer: all start again, this run",
    )


def _edit(gym: Gym, wheel: Path, selection: Sequence[str]) -> float:
    """Seconds after one line more in a server of the user's own tree, which is the wheel's copied there."""
    own = gym.cwd / EDITED
    shutil.copytree(wheel / EDITED, own, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    try:
        gym.run("compose", "up", "-d", *selection)
        app = own / "app.py"
        app.write_text(app.read_text(encoding="utf-8") + "\n# edited by the bench\n", encoding="utf-8")
        return gym.run("compose", "up", "-d", *selection)
    finally:
        shutil.rmtree(own)


def policy(url: str) -> list[str]:
    """Overrides that the example needs."""
    return [f"++policy_base_url={url}", "++policy_api_key=dummy", "++policy_model_name=mock"]


def disk_bytes(used: Sequence[dict[str, Any]], known: Sequence[dict[str, Any]]) -> int:
    """Bytes that the images ``used`` take together: what is shared counts once, as far as an image of ``known`` ends where they part."""
    distinct = sorted({facts["Id"]: facts for facts in used}.values(), key=lambda facts: -int(facts["Size"]))
    total = 0
    for number, facts in enumerate(distinct):
        shared = [parent for parent in known if any(_stands_on(other, parent) for other in distinct[:number])]
        added = own_bytes(facts, shared)
        total += int(facts["Size"]) if added is None else added
    return total


def _stands_on(facts: dict[str, Any], parent: dict[str, Any]) -> bool:
    layers, below = facts["RootFS"].get("Layers") or [], parent["RootFS"].get("Layers") or []
    return bool(below) and layers[: len(below)] == below


def peer_root() -> Path | None:
    """The unpacked wheel."""
    given = os.environ.get("GYM_COMPOSE_PEER_ROOT")
    place = Path(given).resolve() if given else root() / ".cache" / "peer"
    return place if (place / "nemo_gym").is_dir() else None


def shared_tools() -> Path | None:
    """The directory of ``mock_openai.py``."""
    tools = Path(os.environ.get("GYM_COMPOSE_SHARED", root().parent / "shared")) / "tools"
    return tools if (tools / "mock_openai.py").is_file() else None
