"""Three marker secrets are in the secret slices of the services that need them and nowhere else (design decision 7)."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from gym_compose.wire.deadline import Deadline

pytestmark = [pytest.mark.docker, pytest.mark.slow]
NEEDS = {"api_key": "outside_model", "url": "outside_model", "list": "own_tool"}


@pytest.fixture
def assert_clean(shared: Any) -> Callable[[str, str], None]:
    def check(text: str, where: str) -> None:
        found = [kind for kind, value in shared.secrets.items() if value in text]
        assert not found, f"{where} holds the secret of kind {', '.join(found)}"

    return check


Check = Callable[[str, str], None]


def test_each_secret_stands_in_the_secret_slice_of_the_server_that_needs_it_and_in_no_other_file(shared: Any) -> None:
    holders: dict[str, set[str]] = {kind: set() for kind in shared.secrets}
    for file in shared.gym.directory.rglob("*"):
        if not file.is_file():
            continue
        data = file.read_bytes()
        for kind, value in shared.secrets.items():
            if value.encode() in data:
                holders[kind].add(file.relative_to(shared.gym.directory).as_posix())
    assert holders == {kind: {f"slices/{service}/secret.json"} for kind, service in NEEDS.items()}


def test_secret_slices_are_readable_by_their_server_alone(shared: Any) -> None:
    files = list((shared.gym.directory / "slices").glob("*/secret.json"))
    uid = {state.service: shared.gym.project.deployment.service(state.service).user for state in shared.gym.observe().services}
    assert len(files) == 9
    for file in files:
        status = file.stat()
        assert status.st_mode & 0o777 == 0o400, file
        if os.getuid() == 0:
            assert f"{status.st_uid}:{status.st_gid}" == uid[file.parent.name]


def test_a_server_mounts_its_own_slice_and_no_other(shared: Any) -> None:
    for state in shared.gym.observe().services:
        mounts = shared.gym.docker.api.inspect(state.identity, Deadline.after(20))["Mounts"]
        slices = {Path(mount["Source"]).parent.name for mount in mounts if "/slices/" in mount["Source"]}
        assert slices == (set() if state.service == "head" else {state.service})


def test_the_server_that_needs_it_has_it_and_its_caller_sees_a_mask(shared: Any) -> None:
    code = "import json; print(open('/run/secrets/slice').read())"
    assert shared.secrets["api_key"] in shared.gym.exec("outside_model", "/opt/gym/bin/python", "-c", code).stdout
    agent = shared.gym.exec("outside_agent", "/opt/gym/bin/python", "-c", "print(open('/run/gym/slice.json').read())").stdout
    block = json.loads(agent)["config"]["outside_model"]["responses_api_models"]["openai_model"]
    assert (block["openai_api_key"], block["openai_base_url"]) == ("****", "****")


def test_docker_knows_none_of_them(shared: Any, assert_clean: Check) -> None:
    api = shared.gym.docker.api
    deadline = Deadline.after(60)
    for state in shared.gym.observe().services:
        assert_clean(json.dumps(api.inspect(state.identity, deadline)), f"docker inspect {state.service}")
    for network in api.networks([f"com.docker.compose.project={shared.gym.name}"], deadline):
        assert_clean(json.dumps(network), f"network {network['Name']}")
    for image in shared.gym.project.deployment.images:
        facts = api.image(image.name, deadline)
        if facts is None:  # an image that others were built from may be gone
            continue
        assert_clean(json.dumps(facts), f"docker inspect {image.name}")
        history = api.call(lambda client, name=image.name: client.history(name), "read the history", deadline)
        assert_clean(json.dumps(history), f"docker history {image.name}")


def test_no_listener_tells_one(shared: Any, assert_clean: Check) -> None:
    with httpx.Client(base_url=shared.gym.head_url, trust_env=False) as client:
        for path in ("/", "/health", "/readyz", "/global_config_dict_yaml", "/server_instances", "/gym_compose", "/openapi.json"):
            assert_clean(client.get(path).text, f"the published {path}")
    code = "import urllib.request as r; print(r.urlopen('http://head.gym:11000/global_config_dict_yaml', timeout=5).read().decode())"
    answer = shared.gym.exec("outside_agent", "/opt/gym/bin/python", "-c", code).stdout
    assert "outside_model" in answer
    assert_clean(answer, "the inner listener")


def test_no_log_line_and_no_process_argument_holds_one(shared: Any, assert_clean: Check) -> None:
    row = {"responses_create_params": {"input": [{"role": "user", "content": "Hello?"}]}, "agent_ref": {"name": "outside_agent"}}
    seen: set[str] = set()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit():
                    try:
                        seen.add((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
                    except OSError:
                        continue  # it has ended meanwhile
            stop.wait(0.02)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        shared.gym.start()
        records = shared.gym.collect([row, {**row, "agent_ref": {"name": "outside_agent"}}])
    finally:
        stop.set()
        thread.join()
    assert len(records) == 2
    assert any("gym_compose.driver" in line for line in seen), "the driver was not seen, so the test shows nothing"
    assert any("docker compose" in line or "docker-compose" in line for line in seen)
    for line in seen:
        assert_clean(line, f"the process {line.split(' ')[0]}")
    raw = shared.gym.docker.api
    for state in shared.gym.observe().services:
        text = b"".join(raw.log(state.identity, Deadline.after(20), tail=None)).decode("utf-8", "replace")
        assert_clean(text, f"the log of {state.service}")
    assert_clean(json.dumps(records), "the records")


def test_what_the_commands_print_holds_none(shared: Any, assert_clean: Check) -> None:
    assert_clean(shared.gym.project.compose_text(), "gym compose config")
    for line in shared.gym.lines:
        assert_clean(line, "a line of progress")
