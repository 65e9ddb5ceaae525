"""Images: parents first, skipped when there, the last lines of a failure, what each adds."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gym_compose.compiler.deployment import Deployment, Image
from gym_compose.engine.docker.base_image import find_script, pull
from gym_compose.engine.docker.engine import DockerEngine
from gym_compose.engine.errors import ImageBuildError, ImageMissingError
from gym_compose.testing.fake_engine import sample_deployment
from gym_compose.wire.deadline import Deadline

pytestmark = [pytest.mark.docker, pytest.mark.slow]


def soon(seconds: float = 120.0) -> Deadline:
    return Deadline.after(seconds, "a test")


def remove_image(name: str, client: Any) -> None:
    client.remove_image(name, force=True)


class Contexts:
    """build.yaml and its contexts in a directory, as the compiler writes them."""

    def __init__(self, engine: DockerEngine, directory: Path) -> None:
        self.engine = engine
        self.directory = directory
        self.tag = secrets.token_hex(6)
        self.images: list[Image] = []
        self._services: dict[str, Any] = {}

    def name(self, slug: str) -> str:
        return f"gym-compose/enginetest-{slug}:{self.tag}"

    def add(self, slug: str, dockerfile: str, *parents: str) -> str:
        name = self.name(slug)
        context = self.directory / "images" / f"enginetest-{slug}-{self.tag}"
        context.mkdir(parents=True)
        (context / "Dockerfile").write_text(dockerfile)
        self.images.append(Image(name=name, key=self.tag, kind="server", inputs=(), depends_on=parents))
        self._services[slug] = {"image": name, "build": {"context": str(context), "args": ["PIP_INDEX_URL"]}}
        return name

    def write(self) -> Deployment:
        (self.directory / "build.yaml").write_text(json.dumps({"name": "enginetest", "services": self._services}))
        return sample_deployment("enginetest", images=self.images)


@pytest.fixture
def contexts(engine: DockerEngine, tmp_path: Path) -> Iterator[Contexts]:
    made = Contexts(engine, tmp_path)
    yield made
    for image in reversed(made.images):
        if engine.api.image(image.name, soon()) is not None:
            engine.api.call(partial(remove_image, image.name), "remove image", soon())


def test_parents_are_built_first_and_what_exists_is_skipped(contexts: Contexts, engine: DockerEngine, image: str) -> None:
    parent = contexts.name("parent")
    # The child stands first on purpose: only its dependency may decide.
    child = contexts.add("child", f"FROM {parent}\nRUN head -c 100000 /dev/urandom > /child\n", parent)
    contexts.add("parent", f"FROM {image}\nRUN echo parent > /parent\n")
    said: list[str] = []
    built = {item.name: item for item in engine.build(contexts.write(), contexts.directory, soon(), said.append)}
    assert all(item.built for item in built.values())
    assert 100_000 <= (built[child].own_bytes or 0) < 200_000
    assert [line.split()[1] for line in said if line.startswith("building")] == [parent, child]
    told = len(said)
    started = time.monotonic()
    again = engine.build(contexts.write(), contexts.directory, soon(), said.append)
    assert [item.built for item in again] == [False, False]
    assert [item.image_id for item in again] == [built[item.name].image_id for item in again]
    assert time.monotonic() - started < 5
    assert len(said) == told


def test_a_failing_dockerfile_shows_the_end_of_its_output(contexts: Contexts, engine: DockerEngine, image: str) -> None:
    contexts.add("bad", f"FROM {image}\nRUN for i in $(seq 100); do echo line $i; done; echo cannot find it >&2; exit 4\n")
    with pytest.raises(ImageBuildError) as caught:
        engine.build(contexts.write(), contexts.directory, soon(), lambda _: None)
    error = caught.value
    assert error.exit_code == 5
    assert error.where == contexts.images[0].name
    assert len(error.details) <= engine.api.settings.build_tail_lines
    assert any("cannot find it" in line for line in error.details)
    assert engine.api.image(contexts.images[0].name, soon()) is None


def test_a_secret_of_the_host_index_is_masked_in_build_output(
    contexts: Contexts, engine: DockerEngine, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(engine._environ, "PIP_INDEX_URL", "https://user:pass-word-1@index.invalid/simple")
    contexts.add("leak", f'FROM {image}\nARG PIP_INDEX_URL\nRUN test -n "$PIP_INDEX_URL" && echo "from $PIP_INDEX_URL" && exit 1\n')
    with pytest.raises(ImageBuildError) as caught:
        engine.build(contexts.write(), contexts.directory, soon(), lambda _: None)
    shown = "\n".join(caught.value.details)
    assert "from" in shown
    assert "pass-word-1" not in shown


def test_a_pull_that_cannot_work_is_one_clear_error(engine: DockerEngine) -> None:
    with pytest.raises(ImageMissingError, match="cannot be pulled"):
        pull(engine.api, "localhost:1/gym-compose-nowhere:1", soon())


def test_the_script_that_makes_the_base_is_found() -> None:
    assert find_script(None).name == "debootstrap.sh"


def test_a_failure_ends_the_builds_beside_it(contexts: Contexts, engine: DockerEngine, image: str) -> None:
    contexts.add("slow", f"FROM {image}\nRUN echo {contexts.tag} && sleep 90\n")
    contexts.add("bad", f"FROM {image}\nRUN sleep 1 && exit 4\n")
    started = time.monotonic()
    with pytest.raises(ImageBuildError) as caught:
        engine.build(contexts.write(), contexts.directory, soon(), lambda _: None)
    assert caught.value.where == contexts.name("bad")
    assert time.monotonic() - started < 45
