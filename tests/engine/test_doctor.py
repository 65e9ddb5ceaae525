"""``gym compose doctor`` on a real engine: whose image, import and root is well passes, who is not is named, and nothing is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gym_compose.testing import find_leftovers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
ENGINES = [pytest.param("docker", marks=pytest.mark.docker), "process"]
NOT_READY = 6


def with_server(cli: Any, config: str, name: str, app: str) -> None:
    """One more server of the user's own tree in ``config``."""
    directory: Path = cli.cwd / "resources_servers" / name
    directory.mkdir(parents=True)
    (directory / "app.py").write_text(app)
    (directory / "requirements.txt").write_text("gym-compose\n")
    document = yaml.safe_load((cli.cwd / config).read_text())
    document[name] = {"resources_servers": {name: {"entrypoint": "app.py", "domain": "other"}}}
    (cli.cwd / config).write_text(yaml.safe_dump(document, sort_keys=False))


@pytest.mark.parametrize("engine", ENGINES)
def test_each_server_of_a_config_is_tried_and_the_broken_ones_are_named(cli: Any, engine: str) -> None:
    config = cli.small_config()
    with_server(cli, config, "broken", "import not_there\n")
    with_server(cli, config, "dying", "if __name__ == '__main__':\n    raise SystemExit('no data here')\n")
    # Not by cli(...), which takes a traceback for a fault of ours: here a server's own is what is to be shown.
    process = cli.start("compose", "doctor", "--json", "--engine", engine, "-p", "under-doctor", "--config", config)
    stdout, stderr = process.communicate(timeout=900)
    document = json.loads(stdout)
    checks = {check["name"]: check for check in document["checks"]}
    failed = {name: check for name, check in checks.items() if check["status"] == "fail"}
    assert set(failed) == {"broken: import", "dying: root"}, stdout + stderr
    assert failed["broken: import"]["details"][-1] == "ModuleNotFoundError: No module named 'not_there'"
    assert failed["dying: root"]["details"][-1] == "no data here"
    for server in ("tool", "agent", "policy_model", "environment"):
        assert {checks[f"{server}: {what}"]["status"] for what in ("image", "import", "root")} == {"ok"}
    assert (process.returncode, document["exit_code"]) == (NOT_READY, NOT_READY)
    assert list((cli.cwd / ".gym").iterdir()) == []
    assert not find_leftovers("under-doctor-doctor", environ=cli.environ)
