"""A code edit to one server: it alone is rebuilt and recreated (design decisions 4 and 10)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from gym_compose.wire.deadline import Deadline

pytestmark = [pytest.mark.docker, pytest.mark.slow]
EDITED = "own_tool"


def containers(gym: Any) -> dict[str, tuple[str, str]]:
    """Service to (container id, StartedAt)."""
    api = gym.docker.api
    facts = {state.service: api.inspect(state.identity, Deadline.after(20)) for state in gym.observe().services}
    return {service: (fact["Id"], fact["State"]["StartedAt"]) for service, fact in facts.items()}


def images(gym: Any) -> dict[str, str]:
    """Service to image id."""
    api = gym.docker.api
    return {state.service: api.inspect(state.identity, Deadline.after(20))["Image"] for state in gym.observe().services}


CALL = """
import urllib.request
body = b'{"city": "Turin"}'
request = urllib.request.Request("http://own-tool.gym:8000/get_weather", body, {"Content-Type": "application/json"})
print(urllib.request.urlopen(request, timeout=5).read().decode())
"""


def answer(gym: Any) -> str:
    """What the server's tool says to its agent."""
    text: str = gym.exec("outside_agent", "/opt/gym/bin/python", "-c", CALL).stdout
    return text


def test_nothing_is_touched_when_nothing_changed(shared: Any) -> None:
    before = containers(shared.gym)
    shared.gym.start()
    assert containers(shared.gym) == before


def test_an_edit_recreates_that_server_and_leaves_every_other_container_and_image_alone(shared: Any) -> None:
    before, built = containers(shared.gym), images(shared.gym)
    assert "cold" in answer(shared.gym)
    file: Path = shared.server_file
    source = file.read_text()
    assert source.count("cold") == 1
    file.write_text(source.replace("cold", "mild"))
    begun = time.monotonic()
    try:
        shared.gym.start()
        took = time.monotonic() - begun
        after = containers(shared.gym)
        assert {name for name in after if after[name] != before[name]} == {EDITED}
        assert {name for name, image in images(shared.gym).items() if image != built[name]} == {EDITED}
        assert "mild" in answer(shared.gym)
        assert took < 60, f"an edit took {took:.1f} s"
    finally:
        file.write_text(source)
    shared.gym.start()
    assert images(shared.gym) == built, "the same files gave another image"
    assert "cold" in answer(shared.gym)


def test_a_changed_value_recreates_those_whose_slice_has_it(shared: Any) -> None:
    file = shared.cwd / "extra.yaml"
    text = file.read_text()
    before = containers(shared.gym)
    file.write_text(text.replace("domain: agent", "domain: agent\n      colour: blue"))
    try:
        shared.gym.start()
        after = containers(shared.gym)
        # The head has the whole config; the server, its agent and the relay over that have the block.
        assert {name for name in after if after[name] != before[name]} == {"head", EDITED, "outside_agent", "outside_environment"}
    finally:
        file.write_text(text)
        shared.gym.start()
