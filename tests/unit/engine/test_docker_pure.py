"""What of the Docker engine needs no Docker: addresses, messages, times, states, frames, layers, settings."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gym_compose.compiler.deployment import Image
from gym_compose.engine.docker import failure
from gym_compose.engine.docker.api import DockerApi
from gym_compose.engine.docker.base_image import split_reference
from gym_compose.engine.docker.build import build_services, needed_by, own_bytes, ready
from gym_compose.engine.docker.compose import Volume, cli_environment
from gym_compose.engine.docker.driver import DriverContainer
from gym_compose.engine.docker.endpoint import DEFAULT_SOCKET, Endpoint, find_endpoint
from gym_compose.engine.docker.events import translate
from gym_compose.engine.docker.logs import LineAssembler, StampedLine, lines_of
from gym_compose.engine.docker.observe import directory_of, epoch, published_address, role_of, state_of
from gym_compose.engine.docker.package_index import index_settings, parse_pip_config
from gym_compose.engine.docker.stop import _remove_leftovers
from gym_compose.engine.errors import (
    AccessDeniedError,
    AddressPoolError,
    BindSourceError,
    DiskFullError,
    DockerUnavailableError,
    EngineError,
    ImageBuildError,
    ImageMissingError,
    PortTakenError,
)
from gym_compose.testing.fake_engine import sample_deployment, sample_service
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import GymComposeError, InvalidInputError
from gym_compose.wire.redaction import Redactor
from gym_compose.wire.settings import Settings


def soon() -> Deadline:
    return Deadline.after(30.0, "a test")


# Which engine


def context(home: Path, name: str, host: str) -> None:
    meta = home / ".docker" / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest()
    meta.mkdir(parents=True, exist_ok=True)
    (meta / "meta.json").write_text(json.dumps({"Name": name, "Endpoints": {"docker": {"Host": host}}}))


@pytest.mark.parametrize(
    ("environ", "current", "url"),
    [
        ({}, None, DEFAULT_SOCKET),
        ({}, "default", DEFAULT_SOCKET),
        ({}, "rootless", "unix:///run/user/1000/docker.sock"),
        ({"DOCKER_CONTEXT": "rootless"}, None, "unix:///run/user/1000/docker.sock"),
        ({"DOCKER_CONTEXT": "default"}, "far", DEFAULT_SOCKET),
        ({"DOCKER_HOST": "unix:///x.sock"}, "far", "unix:///x.sock"),
        ({"DOCKER_HOST": "tcp://127.0.0.1:2375"}, None, "tcp://127.0.0.1:2375"),
        ({"DOCKER_HOST": "tcp://localhost:2375"}, None, "tcp://localhost:2375"),
        ({"DOCKER_HOST": "tcp://[::1]:2375"}, None, "tcp://[::1]:2375"),
    ],
)
def test_the_engine_that_the_cli_would_use(tmp_path: Path, environ: dict[str, str], current: str | None, url: str) -> None:
    context(tmp_path, "rootless", "unix:///run/user/1000/docker.sock")
    context(tmp_path, "far", "ssh://me@far")
    if current is not None:
        (tmp_path / ".docker" / "config.json").write_text(json.dumps({"currentContext": current}))
    assert find_endpoint({"HOME": str(tmp_path), **environ}).url == url


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"DOCKER_HOST": "tcp://10.0.0.7:2376"}, "DOCKER_HOST: the Docker engine at tcp://10.0.0.7:2376 is on another machine"),
        ({"DOCKER_HOST": "ssh://me@far"}, "ssh://\\*\\*\\*\\*@far is on another machine"),
        ({"DOCKER_HOST": "unix://"}, "another machine"),
        ({"DOCKER_HOST": "nonsense"}, "another machine"),
        ({"DOCKER_CONTEXT": "far"}, "the Docker context 'far': the Docker engine at ssh"),
        ({"DOCKER_CONTEXT": "nowhere"}, "the Docker context 'nowhere' cannot be read"),
    ],
)
def test_an_engine_on_another_machine_is_refused(tmp_path: Path, environ: dict[str, str], said: str) -> None:
    context(tmp_path, "far", "ssh://me@far")
    with pytest.raises(DockerUnavailableError, match=said) as caught:
        find_endpoint({"HOME": str(tmp_path), **environ})
    assert caught.value.hint


def api(url: str, **settings: Any) -> DockerApi:
    return DockerApi(Endpoint(url, "a test"), Settings(**settings), Redactor())


def test_no_socket_means_not_running(tmp_path: Path) -> None:
    with pytest.raises(DockerUnavailableError, match=f"{tmp_path}/x.sock: the Docker engine does not run") as caught:
        api(f"unix://{tmp_path}/x.sock").ping(soon())
    assert caught.value.exit_code == 4


def test_a_socket_without_permission_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may connect to anything, so the refusal is the kernel's word for an ordinary user, put in by hand.
    def refuse(self: socket.socket, address: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("gym_compose.engine.docker.api.socket.socket.connect", refuse)
    with pytest.raises(DockerUnavailableError, match="may not talk to the Docker engine") as caught:
        api(f"unix://{tmp_path}/x.sock").ping(soon())
    assert "usermod -aG docker" in (caught.value.hint or "")


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Any]:
    """A socket that answers each connection with a fixed text, or nothing at all."""
    path = tmp_path / "docker.sock"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    answers: list[bytes] = []
    kept: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            kept.append(connection)
            if answers:
                connection.recv(4096)
                connection.sendall(answers[0])

    thread = threading.Thread(target=serve)
    thread.start()

    def use(answer: bytes | None) -> str:
        if answer is not None:
            answers.append(answer)
        return f"unix://{path}"

    yield use
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(10)
    for connection in kept:
        connection.close()


def test_the_engines_version_is_read(answering: Any) -> None:
    url = answering(b"HTTP/1.1 200 OK\r\nApi-Version: 1.44\r\nContent-Length: 2\r\n\r\nOK")
    assert api(url).ping(soon()) == (1, 44)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nApi-Version: 1.40\r\nContent-Length: 2\r\n\r\nOK", "too old \\(API 1.40\\)"),
        (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", "no Docker engine \\(status 404\\)"),
        (b"SSH-2.0-OpenSSH\r\n", "does not answer"),
    ],
)
def test_what_is_no_engine_or_too_old_is_refused(answering: Any, answer: bytes, said: str) -> None:
    with pytest.raises(DockerUnavailableError, match=said):
        api(answering(answer)).ping(soon())


def test_an_engine_that_hangs_is_given_up_on(answering: Any) -> None:
    with pytest.raises(DockerUnavailableError, match=r"did not answer within 0\.3 s"):
        api(answering(None), docker_check_seconds=0.3).ping(soon())


# Messages

MESSAGES: list[tuple[str, type[GymComposeError]]] = [
    ("Error response from daemon: could not find an available, non-overlapping IPv4 address pool among the defaults", AddressPoolError),
    ("failed to create network x: all predefined address pools have been fully subnetted", AddressPoolError),
    ("driver failed programming external connectivity: Bind for 127.0.0.1:11000 failed: port is already allocated", PortTakenError),
    ("Error starting userland proxy: listen tcp4 127.0.0.1:11000: bind: address already in use", PortTakenError),
    ("failed to bind host port for 127.0.0.1:11000:172.18.0.2:11001/tcp: address already in use", PortTakenError),
    ("failed to bind host port 127.0.0.1:11000/tcp: address already in use", PortTakenError),
    ("write /var/lib/docker/tmp/x: no space left on device", DiskFullError),
    ("No such image: gym-compose/x:1", ImageMissingError),
    ("pull access denied for gym-compose/x, repository does not exist", ImageMissingError),
    ("manifest for python:9 not found: manifest unknown", ImageMissingError),
    ('invalid mount config for type "bind": bind source path does not exist: /a b/c', BindSourceError),
    ("permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock", DockerUnavailableError),
    ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?", DockerUnavailableError),
    ("dial unix /var/run/docker.sock: connect: connection refused", DockerUnavailableError),
    ("open /work/.gym/p/compose.yaml: permission denied", AccessDeniedError),
]


@pytest.mark.parametrize(("text", "kind"), MESSAGES)
def test_known_messages_become_errors_with_a_fix(text: str, kind: type[GymComposeError]) -> None:
    error = failure.recognise(f"some words\n{text}\nmore words", Redactor())
    assert type(error) is kind
    assert error.hint
    assert text in "\n".join(error.details)
    if isinstance(error, PortTakenError):
        assert error.port == 11000
    if isinstance(error, BindSourceError):
        assert error.where == "/a b/c"


@pytest.mark.parametrize(
    "text",
    [
        "",
        'Error response from daemon: OCI runtime create failed: exec: "nope": executable file not found in $PATH',
        "dependency failed to start: container x is unhealthy",
        "yaml: line 3: mapping values are not allowed in this context",
    ],
)
def test_other_messages_are_left_as_they_are(text: str) -> None:
    assert failure.recognise(text, Redactor()) is None


def test_details_are_masked() -> None:
    error = failure.recognise("no space left on device while writing top-secret", Redactor(["top-secret"]))
    assert error is not None
    assert error.details == ("no space left on device while writing ****",)


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ("context deadline exceeded", True),
        ("read tcp: i/o timeout", True),
        ("unexpected EOF", True),
        ("port is already allocated", False),
        ("", False),
    ],
)
def test_only_a_busy_engine_is_asked_again(text: str, again: bool) -> None:
    assert failure.is_transient(text) is again


# The CLI's environment and mounts


def test_the_cli_sees_what_it_needs_and_no_compose_variable() -> None:
    given = {
        "PATH": "/bin",
        "HOME": "/h",
        "COMPOSE_FILE": "/other.yaml",
        "COMPOSE_PROFILES": "driver",
        "OPENAI_API_KEY": "secret",
        "DOCKER_CONTEXT": "x",
        "DOCKER_CONFIG": "/c",
        "PIP_INDEX_URL": "https://i/",
        "https_proxy": "http://p",
    }
    assert cli_environment(given, Endpoint("unix:///s", "")) == {
        "PATH": "/bin",
        "HOME": "/h",
        "DOCKER_CONFIG": "/c",
        "PIP_INDEX_URL": "https://i/",
        "https_proxy": "http://p",
        "DOCKER_HOST": "unix:///s",
    }


def test_a_mount_argument(tmp_path: Path) -> None:
    assert Volume(str(tmp_path), "/io", read_only=True).argument() == f"{tmp_path}:/io:ro"
    assert Volume(str(tmp_path), "/io", read_only=False).argument() == f"{tmp_path}:/io"
    with pytest.raises(BindSourceError):
        Volume(f"{tmp_path}/missing", "/io", read_only=True).argument()
    with pytest.raises(InvalidInputError):
        Volume("/a:b", "/io", read_only=True).argument()


# Facts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01Z", 1.0),
        ("1970-01-01T00:00:01.5Z", 1.5),
        ("1970-01-01T00:00:01.000000001Z", 1.000000001),
        ("1970-01-01T01:00:01.25+01:00", 1.25),
        ("0001-01-01T00:00:00Z", None),
        ("", None),
        ("yesterday", None),
        (None, None),
        (5, None),
    ],
)
def test_times_of_the_engine(text: object, expected: float | None) -> None:
    assert epoch(text) == expected


def test_a_state_out_of_an_inspection() -> None:
    facts = {
        "Id": "c1",
        "State": {"Status": "exited", "ExitCode": 137, "OOMKilled": True, "StartedAt": "1970-01-01T00:00:01Z"},
        "RestartCount": 2,
        "Config": {
            "Image": "i:1",
            "Labels": {
                "com.docker.compose.project": "p",
                "com.docker.compose.service": "one",
                "gym-compose.instance": "one/x",
                "gym-compose.role": "head",
                "gym-compose.slice-sha256": "s",
            },
        },
        "NetworkSettings": {"Networks": {"p_servers": {}, "p_front": {}}},
    }
    state = state_of(facts)
    assert (state.service, state.role, state.instance, state.status, state.exit_code, state.oom_killed) == (
        "one",
        "head",
        "one/x",
        "exited",
        137,
        True,
    )
    assert (state.identity, state.image, state.slice_sha256, state.restarts, state.started_at) == ("c1", "i:1", "s", 2, 1.0)
    assert state.networks == ("front", "servers")
    assert state_of({"State": {"Status": "running", "ExitCode": 0}}).exit_code is None


@pytest.mark.parametrize(
    ("labels", "role"),
    [
        ({}, "server"),
        ({"gym-compose.role": "head"}, "head"),
        ({"gym-compose.role": "driver"}, "driver"),
        ({"gym-compose.role": "relay"}, "relay"),
        ({"com.docker.compose.service": "driver"}, "driver"),
        ({"gym-compose.role": "server", "com.docker.compose.oneoff": "True"}, "driver"),
        ({"gym-compose.role": "server", "com.docker.compose.oneoff": "False"}, "server"),
    ],
)
def test_roles(labels: dict[str, str], role: str) -> None:
    assert role_of(labels) == role


def test_the_directory_is_ours_or_the_compose_files() -> None:
    assert directory_of({"gym-compose.directory": "/a", "com.docker.compose.project.working_dir": "/b"}) == "/a"
    assert directory_of({"com.docker.compose.project.working_dir": "/b"}) == "/b"
    assert directory_of({}) is None


@pytest.mark.parametrize(
    ("ports", "address"),
    [
        ({}, None),
        ({"8000/tcp": None}, None),
        ({"11001/tcp": [{"HostIp": "127.0.0.1", "HostPort": "32768"}]}, "127.0.0.1:32768"),
        ({"11001/tcp": [{"HostIp": "::", "HostPort": "5"}, {"HostIp": "0.0.0.0", "HostPort": "6"}]}, "127.0.0.1:6"),
        ({"1/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}]}, None),
    ],
)
def test_published_addresses(ports: dict[str, Any], address: str | None) -> None:
    assert published_address({"NetworkSettings": {"Ports": ports}}) == address


def test_events_are_translated() -> None:
    event = {
        "Action": "die",
        "id": "c1",
        "timeNano": 2_500_000_000,
        "Actor": {"ID": "c1", "Attributes": {"com.docker.compose.service": "one", "exitCode": "7"}},
    }
    container, told = translate(event)
    assert (container, told.service, told.kind, told.exit_code, told.oom_killed, told.at) == ("c1", "one", "die", 7, False, 2.5)
    _, told = translate({**event, "Action": "oom"})
    assert (told.kind, told.exit_code, told.oom_killed) == ("oom", None, True)


@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1), max_size=5),
    size=st.integers(4, 9),
)
def test_frames_become_the_lines_that_were_written(lines: list[str], size: int) -> None:
    frames = []
    for number, line in enumerate(lines):
        data = line.encode() + b"\n"
        # The engine cuts at bytes; a character must not be cut here, since each frame is decoded by itself.
        parts = [data] if len(data) > len(line) + 1 else [data[start : start + size] for start in range(0, len(data), size)]
        frames += [f"2026-01-01T00:00:0{number}.000000000Z ".encode() + part for part in parts]
    assert [line.text for line in lines_of(frames)] == lines


def test_a_line_without_an_end_is_kept() -> None:
    assembler = LineAssembler()
    assert list(assembler.feed(b"2026-01-01T00:00:00Z half")) == []
    (line,) = assembler.flush()
    assert (line.text, line.at) == ("half", 1767225600.0)
    assert list(assembler.flush()) == []


# Images


def image(name: str, *parents: str) -> Image:
    return Image(name=name, key="k", kind="server", inputs=(), depends_on=parents)


def test_only_images_whose_parents_are_there_are_ready() -> None:
    images = [image("base"), image("native", "base"), image("server", "native", "base")]
    assert [item.name for item in ready(images, {"base", "native", "server"})] == ["base"]
    assert [item.name for item in ready(images[1:], {"native", "server"})] == ["native"]
    assert [item.name for item in ready(images[2:], {"server"})] == ["server"]
    assert [item.name for item in ready(images[1:], {"server"})] == ["native", "server"]


def layers(size: int, *names: str) -> dict[str, Any]:
    return {"Size": size, "RootFS": {"Layers": list(names)}}


@pytest.mark.parametrize(
    ("parents", "expected"),
    [
        ([], None),
        ([layers(60, "a", "b")], 40),
        ([layers(10, "a"), layers(60, "a", "b"), layers(500, "x")], 40),
        ([layers(500, "x")], None),
        ([layers(0)], None),
    ],
)
def test_what_an_image_adds_to_its_parent(parents: list[dict[str, Any]], expected: int | None) -> None:
    assert own_bytes(layers(100, "a", "b", "c"), parents) == expected


def test_the_build_file_says_which_service_makes_an_image(tmp_path: Path) -> None:
    file = tmp_path / "build.yaml"
    file.write_text(yaml.safe_dump({"services": {"x-1": {"image": "gym-compose/x:1", "build": {}}}}))
    assert build_services(file) == {"gym-compose/x:1": "x-1"}
    for broken in ("services: [", "services: 3", "{}"):
        file.write_text(broken)
        with pytest.raises(ImageBuildError, match="cannot be read"):
            build_services(file)
    with pytest.raises(ImageBuildError, match="cannot be read"):
        build_services(tmp_path / "missing")


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("python", ("python", "latest")),
        ("python:3.13-slim", ("python", "3.13-slim")),
        ("host:5000/a/b", ("host:5000/a/b", "latest")),
        ("host:5000/a/b:1", ("host:5000/a/b", "1")),
        ("a@sha256:00", ("a@sha256:00", None)),
    ],
)
def test_references_are_split(reference: str, expected: tuple[str, str | None]) -> None:
    assert split_reference(reference) == expected


def test_pip_settings_of_the_host() -> None:
    text = "global.index-url='https://a/simple'\nglobal.extra-index-url='\\nhttps://b/\\nhttps://c/'\n:env:.x='1'\nnonsense\n"
    assert parse_pip_config(text) == {"PIP_INDEX_URL": "https://a/simple", "PIP_EXTRA_INDEX_URL": "https://b/ https://c/"}
    assert parse_pip_config("") == {}


def test_the_environment_goes_before_pips_files(tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = https://file/simple\ntrusted-host = file\n")
    environ = {"PIP_CONFIG_FILE": str(config), "HOME": str(tmp_path), "PIP_INDEX_URL": "https://environment/simple"}
    found = index_settings(environ, Settings(), soon())
    assert found == {"PIP_INDEX_URL": "https://environment/simple", "PIP_TRUSTED_HOST": "file"}
    # An interpreter without pip has no settings, which is no error.
    assert index_settings({}, Settings(), soon(), python="false") == {}


def test_a_drivers_lines_come_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    # A secret that is an ordinary word must not break the JSON of an event.
    written = '{"event":"finished","counts":{"completed":1}}'

    class Follower:
        def __init__(self, _api: DockerApi, _container: str, take: Any, **_options: object) -> None:
            self.ended = threading.Event()
            self.error = None
            self._take = take

        def start(self) -> Follower:
            self._take(StampedLine("1", None, written))
            self.ended.set()
            return self

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr("gym_compose.engine.docker.driver.Follower", Follower)
    api = DockerApi(Endpoint("unix:///nowhere", "a test"), Settings(), Redactor(["completed", "finished"]))
    assert list(DriverContainer(api, "c", {}).lines(threading.Event())) == [written]


def test_a_failed_build_names_those_who_need_the_image() -> None:
    def image(name: str, *parents: str) -> Image:
        return Image(name, "k", "server", (), depends_on=parents)

    images = (image("native"), image("requirements", "native"), image("one", "requirements"), image("two", "native"))
    services = (sample_service("a", image="one"), sample_service("b", image="two"), sample_service("head", image="native"))
    deployment = sample_deployment(services=services, images=images)
    assert needed_by("requirements", deployment) == ("a",)
    assert needed_by("two", deployment) == ("b",)
    assert needed_by("native", deployment) == (), "all of them"


class _Leftovers:
    """A Docker whose network cannot be removed for the first ``busy`` calls."""

    settings = Settings(removal_seconds=2.0, event_settle_seconds=0.01)

    def __init__(self, busy: int) -> None:
        self.busy = busy
        self.there = True

    def containers(self, _labels: object, _deadline: Deadline) -> list[Any]:
        return []

    volumes = containers

    def networks(self, _labels: object, _deadline: Deadline) -> list[Any]:
        return [{"Name": "p_servers", "Id": "n1"}] if self.there else []

    def remove_network(self, _network: str, _deadline: Deadline) -> bool:
        if self.busy > 0:
            self.busy -= 1
            raise EngineError("it is being made")
        self.there = False
        return True


def test_what_is_still_being_made_is_removed_a_moment_later() -> None:
    lines: list[str] = []
    assert _remove_leftovers(_Leftovers(3), "p", Deadline.after(10), lines.append) == []  # type: ignore[arg-type]
    assert lines == ["removed network p_servers"]


def test_what_cannot_be_removed_is_named_with_the_reason() -> None:
    stuck = _Leftovers(10_000)
    stuck.settings = Settings(removal_seconds=0.05, event_settle_seconds=0.01)
    lines: list[str] = []
    assert _remove_leftovers(stuck, "p", Deadline.after(10), lines.append) == ["network p_servers"]  # type: ignore[arg-type]
    assert lines == ["network p_servers: it is being made"]
