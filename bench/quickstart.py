"""The four-server quickstart on Docker: time to ready, memory and CPU when idle, time after a code edit, what an image adds."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker

from bench.figure import Figure
from bench.gym import PROJECT, QUICKSTART, Gym
from gym_compose.wire.names import LABEL_INSTANCE, LABEL_PROJECT, LABEL_ROLE

IDLE_SECONDS = 20.0
SETTLE_SECONDS = 5.0
UP_RUNS = 3
MEGABYTE = 1_000_000.0
NANO = 1e9
PEER_READY_SECONDS = 29.5  # platform.md: venvs there
PEER_SERVER_MB = {"resources_servers": 280.0, "responses_api_agents": 268.0, "environment_servers": 153.0, "responses_api_models": 132.0}
EDITED = "responses_api_agents/simple_agent"


def figures(gym: Gym, servers: Path) -> Iterator[Figure]:
    """``servers`` is a copy of our server trees that is searched first, so that an edit touches no checkout."""
    up = ["compose", "up", "-d", "-p", PROJECT, *QUICKSTART, "--search-dir", str(servers)]
    down = ["compose", "down", "-p", PROJECT]
    client = docker.from_env()
    try:
        gym.run("compose", "build", "-p", PROJECT, *QUICKSTART, "--search-dir", str(servers))
        seconds = []
        for run in range(UP_RUNS):
            seconds.append(gym.run(*up))
            if run < UP_RUNS - 1:
                gym.run(*down)
        yield Figure(
            "warm gym compose up -d to ready, 4 servers",
            min(seconds),
            "s",
            10.0,
            PEER_READY_SECONDS,
            f"best of {UP_RUNS}; peer: venvs there",
        )
        yield from _idle(client)
        yield from _images(client)
        app = servers / EDITED / "app.py"
        app.write_text(app.read_text(encoding="utf-8") + "\n# edited by the bench\n", encoding="utf-8")
        yield Figure("code edit to one server, up -d again", gym.run(*up), "s", 8.0)
        yield Figure("gym compose down, 4 servers", gym.run(*down), "s")
    finally:
        gym.run(*down)
        client.close()


def copy_servers(source: Path, target: Path) -> Path:
    """Our server trees copied to ``target``, in the layout of a search root."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    return target


def _containers(client: Any) -> list[Any]:
    return list(client.containers.list(filters={"label": f"{LABEL_PROJECT}={PROJECT}"}))


def _idle(client: Any) -> Iterator[Figure]:
    time.sleep(SETTLE_SECONDS)
    containers = _containers(client)
    before = {c.name: _cpu(c) for c in containers}
    started = time.monotonic()
    time.sleep(IDLE_SECONDS)
    elapsed = time.monotonic() - started
    used = sum(_cpu(c) - before[c.name] for c in containers)
    yield Figure("idle CPU of the whole deployment", used / NANO / elapsed, "core", 0.05)
    for container in containers:
        role = container.labels.get(LABEL_ROLE)
        name = container.labels.get(LABEL_INSTANCE) or container.name
        memory = _python_rss(container)
        if role != "server":
            yield Figure(f"memory of the {role}", memory, "MB")
            continue
        heavy = _is_heavy(container)
        yield Figure(f"memory of {name}", memory, "MB", 150.0 if heavy else 70.0, _peer_memory(name), "resident set of the Python process")


def _is_heavy(container: Any) -> bool:
    """The one server of the quickstart with requirements of its own."""
    return any("gym-compose/reasoning-gym:" in tag for tag in container.image.tags)


def _peer_memory(name: str) -> float | None:
    kinds = {
        "agent": "responses_api_agents",
        "model": "responses_api_models",
        "environment": "environment_servers",
        "reasoning_gym": "resources_servers",
    }
    return next((PEER_SERVER_MB[kind] for word, kind in kinds.items() if word in name), None)


def _cpu(container: Any) -> int:
    return int(container.stats(stream=False, one_shot=True)["cpu_stats"]["cpu_usage"]["total_usage"])


def _python_rss(container: Any) -> float:
    """Resident memory, in MB, of the largest process of the container (the server; the other one is the init)."""
    largest = 0
    for row in container.top(ps_args="-o pid,rss")["Processes"]:
        largest = max(largest, int(row[1]))
    return largest * 1024 / MEGABYTE


def _images(client: Any) -> Iterator[Figure]:
    native = client.images.get(_newest(client, "gym-compose/native"))
    for container in _containers(client):
        if container.labels.get(LABEL_ROLE) != "server":
            continue
        name = container.labels.get(LABEL_INSTANCE) or container.name
        added = (container.image.attrs["Size"] - native.attrs["Size"]) / MEGABYTE
        limit = None if _is_heavy(container) else 1.0
        yield Figure(
            f"image of {name} over the native runtime", added, "MB", limit, None, "" if limit else "its requirements and at most 1 MB"
        )


def _newest(client: Any, repository: str) -> str:
    images = sorted(client.images.list(name=repository), key=lambda image: str(image.attrs["Created"]))
    return str(images[-1].tags[0])
