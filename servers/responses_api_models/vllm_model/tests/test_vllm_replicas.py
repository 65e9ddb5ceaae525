"""Which endpoint a session gets; endpoints that move (contract-servers 4.4)."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from vllm_config import VLLMModelConfig
from vllm_replicas import EndpointUnpublishedError, Replicas

BLOCK = {"name": "m", "host": "h", "port": 1, "entrypoint": "app.py", "api_key": "k", "model": "m"}
BLOCK |= {"return_token_id_information": False, "uses_reasoning_parser": True}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _replicas(clock: Clock | None = None, **fields: Any) -> Any:
    config = VLLMModelConfig.model_validate({**BLOCK, "base_url": "http://first/v1", **fields})
    make: Any = str  # an endpoint is its URL here
    return Replicas(config, make, clock or Clock())


def test_a_session_stays_with_one_of_the_endpoints() -> None:
    urls = [f"http://{number}/v1" for number in range(3)]
    replicas = _replicas(base_url=urls)
    for session in ("a", "b", "c", "d"):
        number = int.from_bytes(hashlib.sha256(session.encode()).digest()[:8], "big") % 3
        assert replicas.of(session) == replicas.of(session) == urls[number]


def test_the_file_is_followed_at_its_interval(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "endpoint"
    file.write_text("http://second/v1\n")
    replicas = _replicas(clock, endpoint_file=str(file), endpoint_check_interval_s=10)
    assert replicas.of("s") == "http://second/v1"
    file.write_text("http://third/v1")
    os.utime(file, (1, 1))
    assert replicas.of("s") == "http://second/v1"
    clock.now = 10
    assert replicas.of("s") == "http://third/v1"


@pytest.mark.parametrize("state", ["absent", "empty"])
def test_an_endpoint_that_nobody_publishes_is_used_for_its_grace(tmp_path: Path, state: str) -> None:
    clock, file = Clock(), tmp_path / "endpoint"
    if state == "empty":
        file.touch()
    replicas = _replicas(clock, endpoint_file=str(file), endpoint_stale_grace_s=300, endpoint_check_interval_s=10)
    assert replicas.of("s") == "http://first/v1"
    clock.now = 295
    assert replicas.of("s") == "http://first/v1"
    clock.now = 301  # between two looks
    with pytest.raises(EndpointUnpublishedError, match="301 s"):
        replicas.of("s")
    file.write_text("http://back/v1")
    os.utime(file, (1, 1))
    clock.now = 306
    assert replicas.of("s") == "http://back/v1"
    clock.now = 900
    assert replicas.of("s") == "http://back/v1"


def test_a_file_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    clock = Clock()
    replicas = _replicas(clock, endpoint_file=str(tmp_path), endpoint_check_interval_s=0, endpoint_stale_grace_s=1)
    for clock.now in (0.0, 100.0):
        assert replicas.of("s") == "http://first/v1"
