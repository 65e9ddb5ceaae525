from __future__ import annotations

from pathlib import Path

import httpx
import orjson
import pytest

from gym_compose.project.directory import ProjectDirectory, ProjectState
from gym_compose.project.errors import NoHeadError, ProjectNotFoundError
from gym_compose.project.head import find_head, head_url
from gym_compose.project.http import HeadClient
from gym_compose.wire.settings import Settings


class Heads:
    """Head servers by port: a project's name, or None for a peer's own."""

    def __init__(self, **ports: str | None) -> None:
        self.ports = {int(port.lstrip("p")): project for port, project in ports.items()}

    def connect(self, url: str, settings: Settings) -> HeadClient:
        return HeadClient(url, settings, transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.port not in self.ports:
            raise httpx.ConnectError("refused", request=request)
        project = self.ports[request.url.port]
        if request.url.path == "/gym_compose" and project is not None:
            return httpx.Response(200, content=orjson.dumps({"gym_compose": "0", "project": project, "engine": "docker"}))
        return httpx.Response(200 if request.url.path == "/livez" else 404, content=b"{}")


def started(cwd: Path, project: str, port: int | None) -> None:
    state = ProjectState(project=project, engine="docker", gym_compose="0", head_port=port)
    ProjectDirectory.under(cwd, project).write_state(state)


def find(cwd: Path, heads: Heads, *, explicit: bool = False, port: int = 11000, name: str | None = None) -> tuple[str, str | None]:
    head = find_head(port=port, explicit=explicit, cwd=cwd, settings=Settings(), name=name, connect=heads.connect)
    return head.url, None if head.directory is None else head.directory.project


def test_a_project_that_had_to_take_another_port_is_found(tmp_path: Path) -> None:
    started(tmp_path, "a", 4000)
    assert find(tmp_path, Heads(p4000="a", p11000=None)) == ("http://127.0.0.1:4000", "a")


def test_an_explicit_address_is_taken_at_its_word(tmp_path: Path) -> None:
    started(tmp_path, "a", 4000)
    assert find(tmp_path, Heads(p4000="a", p11000=None), explicit=True) == ("http://127.0.0.1:11000", None)


def test_a_peers_own_head_and_a_project_of_another_directory_have_no_directory(tmp_path: Path) -> None:
    assert find(tmp_path, Heads(p11000=None)) == ("http://127.0.0.1:11000", None)
    assert find(tmp_path, Heads(p11000="elsewhere")) == ("http://127.0.0.1:11000", None)


def test_a_port_that_now_belongs_to_another_project_is_not_taken_for_ours(tmp_path: Path) -> None:
    started(tmp_path, "a", 4000)
    assert find(tmp_path, Heads(p4000="b", p11000=None)) == ("http://127.0.0.1:11000", None)


def test_several_projects_are_told_apart_by_name_or_by_the_default_port(tmp_path: Path) -> None:
    started(tmp_path, "a", 4000)
    started(tmp_path, "b", 11000)
    started(tmp_path, "c", None)
    heads = Heads(p4000="a", p11000="b")
    assert find(tmp_path, heads) == ("http://127.0.0.1:11000", "b")
    assert find(tmp_path, heads, name="a") == ("http://127.0.0.1:4000", "a")
    with pytest.raises(ProjectNotFoundError, match="'c' does not run"):
        find(tmp_path, heads, name="c")


def test_several_projects_none_on_the_default_port_are_an_error_that_lists_them(tmp_path: Path) -> None:
    started(tmp_path, "a", 4000)
    started(tmp_path, "b", 4001)
    with pytest.raises(ProjectNotFoundError, match="a, b"):
        find(tmp_path, Heads(p4000="a", p4001="b"))


def test_no_head_is_an_error_that_says_where_and_why(tmp_path: Path) -> None:
    with pytest.raises(NoHeadError, match=r"http://127\.0\.0\.1:11000: no head server answers: refused"):
        find(tmp_path, Heads())


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:1"),
        ("", "http://127.0.0.1:1"),
        ("::", "http://127.0.0.1:1"),
        ("::1", "http://[::1]:1"),
        ("gpu7", "http://gpu7:1"),
    ],
)
def test_a_bind_address_becomes_one_that_can_be_asked(host: str, url: str) -> None:
    assert head_url(host, 1) == url
