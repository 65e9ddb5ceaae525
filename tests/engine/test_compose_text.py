"""Whatever text a config holds, compose reads back the very same (field-notes B2, B4)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gym_compose.compiler.yaml_text import dump_compose

pytestmark = pytest.mark.docker

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
NASTY = st.sampled_from(
    [
        "$", "$$", "${", "${X", "${X}", "${X:-y}", "$X", "a$", "\\$", "$$$", "%", "#", "no", "on", "1e3", "0o17", "12:30", ".5", "~", "\0",
        "\u2028", "\x85", "\ufeff", "'", '"',
    ]
)  # fmt: skip


def compose_config(document: dict[str, Any], directory: Path) -> Any:
    """``docker compose config --format json`` of the document, with a variable X set, so that an interpolation would show."""
    file = directory / "compose.yaml"
    file.write_text(dump_compose(document), encoding="ascii")
    result = subprocess.run(
        ["docker", "compose", "-f", str(file), "config", "--format", "json", "--no-path-resolution"],
        env={**os.environ, "X": "INTERPOLATED"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module", autouse=True)
def _compose() -> None:
    try:
        found = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        found = False
    if not found:
        if os.environ.get("GYM_COMPOSE_REQUIRE_DOCKER") == "1":
            pytest.fail("docker compose is required and does not answer")
        pytest.skip("docker compose does not answer")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(TEXT, NASTY, st.tuples(TEXT, NASTY, TEXT).map("".join)), min_size=1, max_size=60))
def test_compose_reads_back_every_text(tmp_path: Path, texts: list[str]) -> None:
    service = {
        "image": "x",
        "command": texts,
        "labels": {f"k{number}": text for number, text in enumerate(texts)},
        "environment": {f"K{number}": text for number, text in enumerate(texts)},
    }
    found = compose_config({"name": "p", "services": {"s": service}}, tmp_path)["services"]["s"]
    doubled = [text.replace("$", "$$") for text in texts]  # ``config`` prints text that can be read as a compose file again
    assert found["command"] == doubled
    assert found["labels"] == {f"k{number}": text for number, text in enumerate(doubled)}
    assert found["environment"] == {f"K{number}": text for number, text in enumerate(doubled)}


@pytest.mark.parametrize("name", ["a.b", "Upper", "under_score", "1e3", "no", "x" * 200])
def test_compose_takes_service_names_as_they_are(tmp_path: Path, name: str) -> None:
    assert list(compose_config({"name": "p", "services": {name: {"image": "x"}}}, tmp_path)["services"]) == [name]
