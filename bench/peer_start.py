"""NeMo Gym's own `gym env start` of the four-server example in one container, measured beside ours in the same run.

It runs from the image that our servers of it run from, writable and as root, with ``skip_venv_if_present``: in place of its virtual
environments (2.8 GB, minutes to make; all four hold the same packages) each server's ``.venv`` is the image's own environment, so what is
timed is its start alone, at its best.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.figure import used_memory
from gym_compose.wire.errors import NotReadyError

READY = b"servers ready! Polling"
START_SECONDS = 600.0
_STOP_SECONDS = 30
_SERVERS = (
    "resources_servers/example_single_tool_call",
    "responses_api_agents/simple_agent",
    "environment_servers/legacy_agent",
    "environment_servers/single_agent_turn",
    "environment_servers/single_agent_turn_legacy",
    "responses_api_models/openai_model",
)
_SCRIPT = """set -e
for server in {servers}; do
  mkdir -p /tmp/venvs/$server
  ln -s /opt/gym /tmp/venvs/$server/.venv
done
mkdir /tmp/work
cd /tmp/work
exec gym env start "$@" ++uv_venv_dir=/tmp/venvs ++skip_venv_if_present=true
"""


def measure(client: Any, image: str, overrides: Sequence[str]) -> tuple[float, float]:
    """Seconds from the container's start until NeMo Gym says that all servers are ready, and bytes of memory then (Ray and all).

    ``client`` is the Docker SDK's. Raises NotReadyError with the last lines of its log when it ends or takes too long.
    """
    with started(client, image, overrides) as (container, seconds):
        return seconds, float(used_memory(container.stats(stream=False, one_shot=True)))


@contextlib.contextmanager
def started(client: Any, image: str, overrides: Sequence[str], volumes: Mapping[str, Any] | None = None) -> Iterator[tuple[Any, float]]:
    """Its container and the seconds, while it runs. Arguments and errors as ``measure``."""
    script = _SCRIPT.format(servers=" ".join(_SERVERS))
    begun = time.monotonic()
    container = client.containers.run(
        image,
        ["bash", "-c", script, "start", *overrides],
        detach=True,
        user="0",
        network_mode="host",  # the model endpoint is on this host's loopback
        init=True,
        shm_size="8g",  # what Ray asks for on a machine of 24 GiB; it is not taken until used
        environment={"HOME": "/root"},
        volumes=dict(volumes or {}),
    )
    try:
        while READY not in container.logs():  # not its last lines alone: what it prints next is long
            container.reload()
            if container.status == "exited" or time.monotonic() - begun > START_SECONDS:
                lines = tuple(container.logs(tail=20).decode(errors="replace").splitlines())
                raise NotReadyError("NeMo Gym's own start did not become ready", where=image, details=lines)
            time.sleep(0.1)
        yield container, time.monotonic() - begun
    finally:
        container.stop(timeout=_STOP_SECONDS)
        container.remove(force=True, v=True)
