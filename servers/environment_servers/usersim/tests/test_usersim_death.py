"""An agent's process is killed while it answers: the episode fails at once, and what can be released is."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from gym_compose.serving.client import HttpClient

pytestmark = pytest.mark.slow


async def test_the_assistants_process_is_killed_in_the_middle(servers: Any, example: Any) -> None:
    blocks = example.blocks()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        endpoint = {"openai_base_url": address, "openai_api_key": "none", "openai_model": "m"}
        blocks["policy_model"] = {"responses_api_models": {"openai_model": endpoint}}
        environment = blocks["usersim_environment"]["environment_servers"]["usersim"]
        environment |= {"cleanup_timeout_seconds": 6}
        servers.start(blocks)
        body = {"episode_id": {"rollout_id": "0-0", "attempt": 0}, "task": example.task("late-lamp")}
        async with HttpClient() as http:
            running = asyncio.create_task(http.request("POST", servers.url("usersim_environment") + "/run", json=body))
            connection, _ = await asyncio.to_thread(silent.accept)  # the assistant's model has been asked
            servers.processes["usersim_assistant"].kill()
            failure = (await asyncio.wait_for(running, 30)).json()["failure"]
            counts = (await http.request("GET", servers.url("usersim_environment") + "/episodes")).json()
        connection.close()
    servers.processes.pop("usersim_assistant").wait()
    assert (failure["stage"], failure["terminal"]) == ("agent", False)
    # Three sessions were begun; the one of the dead process is all that could not be closed.
    assert (counts["cleanups_registered"], counts["cleanups_done"]) == (3, 2)
