"""The launcher: slices together, environment, directory, refusals, and a server process from start to exit code."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gym_compose
from gym_compose.serving import launch, session, slice_files
from gym_compose.serving.peer_process import LONGEST_VARIABLE, fits_environment
from gym_compose.wire.errors import InvalidInputError, PrerequisiteError
from gym_compose.wire.slice import PublicSlice, SecretSlice

SERVER = """
from __future__ import annotations
from typing import Any
import os, sys
import neighbour
from gym_compose.serving import Call, ResourcesServer, ResourcesServerConfig, Verdict, tool

class Mine(ResourcesServer):
    config: ResourcesServerConfig

    @tool
    async def facts(self) -> dict[str, Any]:
        return {
            "cwd": os.getcwd(), "path": sys.path[:2], "argv": sys.argv, "neighbour": neighbour.NAME,
            "extra": os.environ.get("EXTRA"), "secret": os.environ.get("SECRET"), "pythonpath": os.environ["PYTHONPATH"],
            "modules": sorted(name for name in ("fastapi", "yaml", "pandas", "openai", "numpy") if name in sys.modules),
            "key": self.merged["mine"]["resources_servers"]["mine"]["api_key"],
            "rss_kb": int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS"))),
        }

    async def verify(self, body: Any, call: Call) -> Verdict:
        return Verdict(1.0)

if __name__ == "__main__":
    print("one\\ntwo")
    Mine.run_webserver()
"""


def public(directory: Path, **changes: Any) -> dict[str, Any]:
    block = {"entrypoint": "app.py", "host": "127.0.0.1", "port": 1, "api_key": "****", "hosts": ["a", "****"]}
    return {
        "format": 1,
        "gym_compose": gym_compose.__version__,
        "instance": "mine",
        "server_type": "resources_servers",
        "implementation": "mine",
        "entrypoint": "app.py",
        "server_dir": str(directory),
        "runtime": "native",
        "config": {"mine": {"resources_servers": {"mine": block}}, "dry_run": False},
        "environment": {"EXTRA": "1"},
        **changes,
    }


SECRET = {
    "format": 1,
    "values": [
        {"path": ["mine", "resources_servers", "mine", "api_key"], "value": "k3y"},
        {"path": ["mine", "resources_servers", "mine", "hosts", 1], "value": "b"},
    ],
    "environment": {"SECRET": "s"},
    "session_key": "run key",
}


@pytest.fixture
def server_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "server"
    directory.mkdir()
    (directory / "app.py").write_text(SERVER)
    (directory / "neighbour.py").write_text("NAME = 'beside'\n")
    return directory


@pytest.fixture(autouse=True)
def key() -> Iterator[None]:
    yield
    session.set_deployment_key(None)


def write(path: Path, data: Any) -> Path:
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_secrets_are_put_back_at_their_paths() -> None:
    config = slice_files.merge(PublicSlice.model_validate(public(Path("/x"))), SecretSlice.model_validate(SECRET))
    block = config["mine"]["resources_servers"]["mine"]
    assert (block["api_key"], block["hosts"]) == ("k3y", ["a", "b"])


@pytest.mark.parametrize("path", [["mine", "nope"], ["mine", "resources_servers", "mine", "hosts", 7], ["dry_run", "x"], [], ["other", 0]])
def test_a_secret_without_a_place_is_refused_and_its_value_not_shown(path: list[str | int]) -> None:
    secret = SecretSlice.model_validate({**SECRET, "values": [{"path": path, "value": "k3y"}]})
    with pytest.raises(InvalidInputError) as caught:
        slice_files.merge(PublicSlice.model_validate(public(Path("/x"))), secret)
    assert "k3y" not in str(caught.value)
    assert "secret slice" in str(caught.value)


def test_prepare_sets_the_environment_and_the_session_key() -> None:
    environ = {"PYTHONPATH": "/before"}
    half = PublicSlice.model_validate(public(Path("/srv/x"), python_path=["/srv"]))
    launch.prepare(half, SecretSlice.model_validate(SECRET), environ)
    assert environ["PYTHONPATH"] == os.pathsep.join(["/srv/x", "/srv", "/before"])
    assert (environ["EXTRA"], environ["SECRET"], environ["NEMO_GYM_CONFIG_PATH"]) == ("1", "s", "mine")
    assert json.loads(environ["NEMO_GYM_CONFIG_DICT"])["mine"]["resources_servers"]["mine"]["api_key"] == "k3y"
    assert "run key" not in str(environ)
    assert session.signing_secret("x") != "x"
    launch.prepare(half, None, {})
    assert session.signing_secret("x") == "x"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "cannot be read"),
        ("{", "is not JSON"),
        ({"format": 2}, "has slice format 2; this launcher reads 1"),
        ([], "is no PublicSlice"),
        (public(Path("/x"), gym_compose="0.0.1"), f"was made by gym_compose 0.0.1, and this image holds {gym_compose.__version__}"),
        ({key: value for key, value in public(Path("/x")).items() if key != "instance"}, "instance: Field required"),
        (public(Path("/x"), unknown=1), "unknown: Extra inputs"),
    ],
)
def test_slices_that_are_none_are_refused(tmp_path: Path, data: Any, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "slice.json"
    if data is not None:
        write(path, data)
    with pytest.raises(InvalidInputError, match=message) as caught:
        slice_files.read_slice(path, PublicSlice)
    assert str(path) in str(caught.value)


def test_a_directory_without_the_entry_point_is_named(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match=r"app\.py: the entry point is not there"):
        launch.run(PublicSlice.model_validate(public(tmp_path)))


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "gym_compose.serving.launch", *map(str, arguments)]


def test_main_says_one_line_and_the_errors_exit_code(tmp_path: Path) -> None:
    done = subprocess.run(command("--slice", tmp_path / "none.json"), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert done.stderr == f"Error: {tmp_path}/none.json: cannot be read (No such file or directory)\n"


def start(tmp_path: Path, server_dir: Path, port: int, **changes: Any) -> subprocess.Popen[str]:
    data = public(server_dir, **changes)
    data["config"]["mine"]["resources_servers"]["mine"]["port"] = port
    arguments: list[str | Path] = ["--slice", write(tmp_path / "public.json", data), "--secret", write(tmp_path / "secret.json", SECRET)]
    root = str(Path(gym_compose.__file__).parents[1])
    return subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={"PYTHONPATH": root, "PATH": os.environ["PATH"]}
    )


def ask(port: int, method: str, path: str) -> tuple[int, Any, Any]:
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method, data=b"{}" if method == "POST" else None)
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return answer.status, json.loads(answer.read()), answer.headers


def wait_ready(process: subprocess.Popen[str], port: int) -> None:
    for _ in range(300):
        assert process.poll() is None, process.communicate()
        try:
            ask(port, "GET", "/")
            return
        except urllib.error.URLError:
            time.sleep(0.05)
    raise AssertionError("the server did not answer")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_process_from_start_to_a_clean_exit(tmp_path: Path, server_dir: Path, number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    process = start(tmp_path, server_dir, port, python_path=["/srv/more"])
    try:
        wait_ready(process, port)
        status, facts, headers = ask(port, "POST", "/facts")
    finally:
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert status == 200
    assert facts["cwd"] == str(server_dir)
    assert facts["path"] == [str(server_dir), "/srv/more"]
    assert facts["argv"] == [str(server_dir / "app.py")]
    assert (facts["neighbour"], facts["extra"], facts["secret"], facts["key"]) == ("beside", "1", "s", "k3y")
    assert facts["modules"] == []
    assert facts["rss_kb"] < 62 * 1024
    assert headers["set-cookie"].startswith("Mine___mine=")
    assert process.returncode == 0
    assert out == "one\ntwo\n"  # before the server: no prefix yet
    assert err
    assert all(line.startswith("(mine) ") for line in err.splitlines())
    assert "run key" not in out + err
    assert "k3y" not in out + err


def test_a_dry_run_exits_0_and_opens_nothing(tmp_path: Path, server_dir: Path) -> None:
    config = public(server_dir)["config"] | {"dry_run": True}
    process = start(tmp_path, server_dir, 1, config=config)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "one\ntwo\n", "")


def test_a_port_that_is_taken_ends_the_process_with_a_reason(tmp_path: Path, server_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        process = start(tmp_path, server_dir, port)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (4, f"Error: address 127.0.0.1:{port}: cannot be bound (Address already in use)\n")


def test_a_block_that_does_not_fit_ends_the_process_with_one_line(tmp_path: Path, server_dir: Path) -> None:
    config = public(server_dir)["config"]
    config["mine"]["resources_servers"]["mine"]["domain"] = "cooking"
    process = start(tmp_path, server_dir, 1, config=config)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert err.startswith("Error: server instance mine: its config does not fit Mine (domain: ")
    assert "Traceback" not in err


SERVER_UTILS = """
from os import getenv
from nemo_gym.global_config import config
class SimpleServer:
    pass
def _has_injected_global_config_env():
    return getenv("NEMO_GYM_CONFIG_DICT") is not None
"""
GLOBAL_CONFIG = """
from os import getenv
_GLOBAL_CONFIG_DICT = None
def config():
    return _GLOBAL_CONFIG_DICT
"""
PEER_APP = """
import json, os, subprocess, sys
from nemo_gym import server_utils
from nemo_gym.server_utils import SimpleServer, config

class Undeclared(SimpleServer):
    pass

class Declared(SimpleServer):
    ray_enabled = True

def facts():
    block = config()["mine"]["resources_servers"]["mine"]
    return [
        getattr(Undeclared, "ray_enabled", None), Declared.ray_enabled, block["api_key"], len(block.get("large", "")),
        "NEMO_GYM_CONFIG_DICT" in os.environ, server_utils._has_injected_global_config_env(),
    ]

if __name__ == "__main__":
    print(json.dumps(facts()), flush=True)
    child = "import json, app; print(json.dumps(app.facts()))"
    subprocess.run([sys.executable, "-c", child], check=True)
"""


@pytest.fixture
def peer_site(tmp_path: Path) -> Path:
    """A nemo_gym with the names that the launcher works on, and omegaconf of this environment."""
    package = tmp_path / "site" / "nemo_gym"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "global_config.py").write_text(GLOBAL_CONFIG)
    (package / "server_utils.py").write_text(SERVER_UTILS)
    return package.parent


def peer(tmp_path: Path, server_dir: Path, site: Path, app: str, **changes: Any) -> tuple[int, str, str]:
    (server_dir / "app.py").write_text(app)
    process = start(tmp_path, server_dir, 1, python_path=[str(site)], **{"runtime": "nemo-gym", **changes})
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_an_entry_point_outside_of_the_directory_imports_what_stands_beside_it(tmp_path: Path, server_dir: Path, peer_site: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "bridge.py").write_text("import beside, neighbour, os\nprint(beside.NAME, neighbour.NAME, os.path.basename(os.getcwd()))\n")
    (other / "beside.py").write_text("NAME = 'there'\n")
    code, out, err = peer(tmp_path, server_dir, peer_site, "", entrypoint="../other/bridge.py")
    assert (code, out, err) == (0, "there beside server\n", "")


@pytest.mark.parametrize(("ray", "undeclared"), [("off", False), ("peer", None)])
def test_a_peers_server_and_its_children_have_the_config_and_the_rule_for_ray(
    tmp_path: Path, server_dir: Path, peer_site: Path, ray: str, undeclared: bool | None
) -> None:
    code, out, err = peer(tmp_path, server_dir, peer_site, PEER_APP, ray=ray)
    assert (code, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == [[undeclared, True, "k3y", 0, True, True]] * 2


def test_a_config_that_no_environment_holds_reaches_children_too(tmp_path: Path, server_dir: Path, peer_site: Path) -> None:
    config = public(server_dir)["config"]
    config["mine"]["resources_servers"]["mine"]["large"] = "\N{SNOWMAN}" * 100_000
    code, out, err = peer(tmp_path, server_dir, peer_site, PEER_APP, config=config)
    assert (code, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == [[False, True, "k3y", 100_000, False, True]] * 2


def test_the_largest_variable_that_can_be_executed_with() -> None:
    for size, fits in ((LONGEST_VARIABLE, True), (LONGEST_VARIABLE + 1, False)):
        value = "\N{SNOWMAN}" + "a" * (size - len("NAME=") - 3)
        assert fits_environment("NAME", value) == fits
        try:
            subprocess.run(["/bin/true"], env={"NAME": value}, check=True)
        except OSError:
            assert not fits
        else:
            assert fits


def test_a_peers_server_that_dies_of_a_key_that_it_was_not_given_says_so_last(tmp_path: Path, server_dir: Path, peer_site: Path) -> None:
    app = "from nemo_gym.server_utils import config\nconfig()['policy_api_key']\n"
    code, _, err = peer(tmp_path, server_dir, peer_site, app, withheld=["policy_api_key"])
    assert code == 1
    lines = err.splitlines()
    assert lines[0] == lines[-1]
    assert lines[-1].endswith("To give it: compose: {servers: {mine: {secrets: [policy_api_key]}}}")
    assert "Traceback (most recent call last):" in lines


def test_an_exit_of_its_own_keeps_its_code(tmp_path: Path, server_dir: Path, peer_site: Path) -> None:
    app = "from nemo_gym.server_utils import config\nif config().get('hf_token') is None:\n    raise SystemExit(7)\n"
    code, _, err = peer(tmp_path, server_dir, peer_site, app, withheld=["hf_token"])
    assert code == 7
    assert err.count("secrets: [hf_token]") == 2


def test_reading_is_no_failure(tmp_path: Path, server_dir: Path, peer_site: Path) -> None:
    app = "from nemo_gym.server_utils import config\nprint(config().get('hf_token'))\n"
    code, out, err = peer(tmp_path, server_dir, peer_site, app, withheld=["hf_token"])
    assert (code, out, err.count("secrets: [hf_token]")) == (0, "None\n", 1)
