"""How a server written for NeMo Gym starts in its container: Ray, several workers, a large config, keys that it was not given, bad code.

The servers are small ones in the user's own tree, in NeMo Gym's style; they need its packages image, and no tree of NeMo Gym on this host.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from gym_compose.project.errors import ServerDiedError
from gym_compose.testing import GymDeployment

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1800)]

SNOWMEN = 60_000
"""Three bytes each: the config is larger than any string of an environment (128 KiB)."""
RAY_SERVER = """
import ray
from neighbour import scaled
from nemo_gym.base_resources_server import BaseResourcesServerConfig, BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer


@ray.remote(scheduling_strategy="SPREAD")
def reward(length):
    return scaled(length)


class RayServer(SimpleResourcesServer):
    ray_enabled = True
    config: BaseResourcesServerConfig

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        value = await reward.remote(len(body.response.output))
        return BaseVerifyResponse(**body.model_dump(), reward=value)


if __name__ == "__main__":
    RayServer.run_webserver()
"""
SEVERAL_SERVER = """
import os
import subprocess
from importlib.metadata import version
from nemo_gym.base_resources_server import BaseResourcesServerConfig, BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.global_config import get_global_config_dict
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint


class SeveralConfig(BaseResourcesServerConfig):
    large: str
    api_key: str


class Several(SimpleResourcesServer):
    config: SeveralConfig

    def setup_webserver(self):
        app = super().setup_webserver()
        app.get("/facts")(self.facts)
        return app

    async def facts(self):
        return {
            "pid": os.getpid(),
            "large": len(self.config.large),
            "api_key": self.config.api_key,
            "key": get_global_config_dict().get("policy_api_key"),
            "computed": version("sortedcontainers"),
            "child": subprocess.run(["/bin/true"]).returncode,
        }

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


if __name__ == "__main__":
    Several.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = Several.run_webserver()
"""
COMPUTED = {
    "pyproject.toml": """[project]
name = "several"
version = "1"
dynamic = ["dependencies"]
[build-system]
requires = ["setuptools>=61"]
build-backend = "setuptools.build_meta"
[tool.uv.sources]
nemo-gym = { path = "../..", editable = true }
""",
    "setup.py": "import setuptools\nsetuptools.setup(install_requires=['nemo-gym[dev]', 'sortedcontainers==' + '2.4.0'], py_modules=[])\n",
}
"""Dependencies as NeMo Gym's own vLLM servers have them: nobody knows them without running setup.py."""
NEEDS_KEY = "from nemo_gym.global_config import get_global_config_dict\nKEY = get_global_config_dict()['policy_api_key']\n"
BROKEN = "import module_that_is_nowhere\n"
ROW = {"responses_create_params": {"input": [{"role": "user", "content": "hello"}]}}


def write(tree: Path, servers: dict[str, dict[str, str]], **top: Any) -> str:
    """A config with a native model, and a native agent and relay for each of ``servers`` (name to files); its name."""
    config: dict[str, Any] = {
        "policy_model": {"responses_api_models": {"scripted_model": {"entrypoint": "app.py", "rule": "first_tool_call", "text": "done"}}}
    }
    blocks = top.pop("blocks", {})
    for name, files in servers.items():
        directory = tree / "resources_servers" / name
        directory.mkdir(parents=True)
        for file, text in (files if "pyproject.toml" in files else {"requirements.txt": "nemo-gym\n", **files}).items():
            (directory / file).write_text(text)
        config[name] = {"resources_servers": {name: {"entrypoint": "app.py", "domain": "other", **blocks.get(name, {})}}}
        agent = {"resources_server": {"type": "resources_servers", "name": name}, "entrypoint": "app.py"}
        agent["model_server"] = {"type": "responses_api_models", "name": "policy_model"}
        config[f"{name}_agent"] = {"responses_api_agents": {"simple_agent": agent}}
    compose = {"nemo_gym": {"version": "0.7.0"}, **top.pop("compose", {})}
    (tree / "boot.yaml").write_text(yaml.safe_dump({**config, **top, "compose": compose}, sort_keys=False, allow_unicode=True))
    return "boot.yaml"


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def facts(gym: GymDeployment, service: str) -> dict[str, Any]:
    host = gym.project.deployment.service(service).host
    script = f"import urllib.request as r; print(r.urlopen('http://{host}:8000/facts', timeout=30).read().decode())"
    found: dict[str, Any] = orjson.loads(docker("exec", f"{gym.name}-{service}-1", "/opt/gym/bin/python", "-c", script))
    return found


def test_a_task_runs_in_the_ray_service_of_a_server_that_asks_for_it(tmp_path: Path) -> None:
    files = {"app.py": RAY_SERVER, "neighbour.py": "def scaled(length):\n    return length / 4\n"}
    config = write(tmp_path, {"with_ray": files})
    with GymDeployment(config, engine="docker", cwd=tmp_path) as gym:
        (record,) = gym.collect([ROW], agent_name="with_ray_agent")
        assert record["reward"] == 0.25
        processes = docker("top", f"{gym.name}-ray-1", "-eo", "pid,args")
        assert "raylet" in processes
        assert "raylet" not in docker("top", f"{gym.name}-with_ray-1", "-eo", "pid,args")
        report = gym.stop()
        assert report.killed == ()
        assert report.stopped.index("with_ray") < report.stopped.index("ray") < report.stopped.index("head")
    assert not gym.leftovers()


def test_two_workers_with_computed_dependencies_a_config_that_no_environment_holds_and_a_key_that_was_granted(tmp_path: Path) -> None:
    block = {"num_workers": 2, "large": "\N{SNOWMAN}" * SNOWMEN, "api_key": "marker-own-key-7"}
    grant = {"servers": {"several": {"secrets": ["policy_api_key"]}}}
    files = {"app.py": SEVERAL_SERVER, **COMPUTED}
    config = write(tmp_path, {"several": files}, blocks={"several": block}, compose=grant, policy_api_key="marker-policy-key-3")
    with GymDeployment(config, engine="docker", cwd=tmp_path) as gym:
        seen: dict[int, dict[str, Any]] = {}
        for _ in range(200):
            found = facts(gym, "several")
            seen[found.pop("pid")] = found
            if len(seen) == 2:
                break
        assert len(seen) == 2, "one worker answered 200 times"
        expected = {"large": SNOWMEN, "api_key": "marker-own-key-7", "key": "marker-policy-key-3", "computed": "2.4.0", "child": 0}
        assert list(seen.values()) == [expected, expected]
        assert "it was not given" not in gym.logs("several")
        assert gym.stop().killed == ()
    assert not gym.leftovers()


def test_a_key_that_was_not_given_is_named_with_the_line_to_add_and_code_that_cannot_be_imported_shows_its_traceback(
    tmp_path: Path,
) -> None:
    config = write(tmp_path, {"needs_key": {"app.py": NEEDS_KEY}}, policy_api_key="marker-policy-key-3")
    with pytest.raises(ServerDiedError) as caught:
        GymDeployment(config, engine="docker", cwd=tmp_path).start()
    assert "To give it: compose: {servers: {needs_key: {secrets: [policy_api_key]}}}" in str(caught.value)
    assert "services/needs_key" in str(caught.value)
    assert any("KEY = get_global_config_dict()" in line for line in caught.value.details)
    (tmp_path / "resources_servers" / "needs_key" / "app.py").write_text(BROKEN)
    with pytest.raises(ServerDiedError) as caught:
        GymDeployment(config, engine="docker", cwd=tmp_path).start()
    assert "ModuleNotFoundError: No module named 'module_that_is_nowhere'" in caught.value.details[-1]
    assert any("import module_that_is_nowhere" in line for line in caught.value.details)
