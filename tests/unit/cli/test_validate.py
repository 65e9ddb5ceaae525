"""``gym env validate``: a config, or a manifest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gym_compose.cli import validate
from gym_compose.cli.translate import Invocation
from gym_compose.config import ConfigError
from gym_compose.wire.errors import GymComposeError

Invoke = Callable[..., Invocation]

SERVER = """
math:
  resources_servers:
    math: {entrypoint: app.py, domain: math}
math_agent:
  responses_api_agents:
    looper:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: math}
      model_server: {type: responses_api_models, name: policy_model}
math_environment:
  environment_servers:
    relay: {entrypoint: app.py, agent_server: {type: responses_api_agents, name: math_agent}}
"""
LOOPER = "math_agent.responses_api_agents.looper"
MODEL = "policy_model: {responses_api_models: {mine: {entrypoint: app.py}}}\n"


@pytest.fixture
def servers(tmp_path: Path) -> Path:
    for name in ("resources_servers/math", "responses_api_agents/looper", "environment_servers/relay", "responses_api_models/mine"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "app.py").write_text('if __name__ == "__main__":\n    S.run_webserver()\n')
        (tmp_path / name / "requirements.txt").write_text("gym-compose\n")
    (tmp_path / "c.yaml").write_text(SERVER)
    (tmp_path / "m.yaml").write_text(MODEL)
    return tmp_path


class TestValidate:
    def test_a_whole_config_is_compiled(self, servers: Path, invoke: Invoke, captured: Any) -> None:
        assert validate.run(invoke("env validate --config c.yaml --config m.yaml"), captured.console) == 0
        assert captured.stdout == "Configuration is valid: 4 servers, 3 references, 8 images.\n"
        assert not (servers / ".gym").exists()

    def test_a_config_that_only_lacks_a_model_passes_with_a_warning(self, servers: Path, invoke: Invoke, captured: Any) -> None:
        assert validate.run(invoke("env validate --config c.yaml"), captured.console) == 0
        assert captured.stdout.startswith("Configuration is valid: ")
        assert "Warning: valid only with a model: " in captured.stderr
        assert "policy_model" in captured.stderr

    def test_strict_refuses_it(self, servers: Path, invoke: Invoke, captured: Any) -> None:
        with pytest.raises(ConfigError, match="policy_model"):
            validate.run(invoke("env validate --config c.yaml --strict"), captured.console)

    def test_the_first_error_is_told_when_a_model_would_not_help(self, servers: Path, invoke: Invoke, captured: Any) -> None:
        with pytest.raises(ConfigError, match="maths"):
            validate.run(
                invoke("env validate --config c.yaml ++math_agent.responses_api_agents.looper.resources_server.name=maths"),
                captured.console,
            )

    def test_a_missing_server_directory_is_an_error(self, servers: Path, invoke: Invoke, captured: Any) -> None:
        (servers / "responses_api_agents/looper/requirements.txt").unlink()
        with pytest.raises(GymComposeError, match="server instance math_agent"):
            validate.run(invoke("env validate --config c.yaml --config m.yaml"), captured.console)

    @pytest.mark.parametrize(
        ("override", "warned"),
        [
            ("++environment_server_routes={t:math_environment}", ""),
            ("++environment_server_routes={}", "taskset 't' has no route"),
            ("++environment_server_routes={t:nowhere}", "'nowhere'"),
            ("++environment_server_routes={t:[math_environment,other]}", "taskset 't' is routed to 2"),
        ],
    )
    def test_a_taskset_that_leads_nowhere_is_a_warning(
        self, servers: Path, invoke: Invoke, captured: Any, override: str, warned: str
    ) -> None:
        (servers / "d.jsonl").touch()
        dataset = "{name:d,type:example,jsonl_fpath:d.jsonl,taskset:t}"
        command = f"env validate --config c.yaml --config m.yaml ++math_agent.responses_api_agents.looper.datasets=[{dataset}] {override}"
        assert validate.run(invoke(command), captured.console) == 0
        told = [line for line in captured.stderr.splitlines() if "dataset 'd' (example) of math_agent" in line]
        assert len(told) == bool(warned)
        assert all(warned in line for line in told)

    def test_a_dataset_that_is_not_on_disk_is_a_warning(self, servers: Path, invoke: Invoke, captured: Any) -> None:
        dataset = "{name: d, type: example, jsonl_fpath: gone.jsonl}"
        text = (
            f"env validate --config c.yaml --config m.yaml ++math_agent.responses_api_agents.looper.datasets=[{dataset.replace(' ', '')}]"
        )
        assert validate.run(invoke(text), captured.console) == 0
        assert "Warning: dataset 'd' (example) of math_agent is not on disk: gone.jsonl." in captured.stderr

    def test_nothing_to_start(self, tmp_path: Path, invoke: Invoke, captured: Any) -> None:
        with pytest.raises(ConfigError, match="no server instance"):
            validate.run(invoke("env validate ++a=1"), captured.console)

    @pytest.mark.parametrize("flag", ["--kind benchmark", "--sync", "--json"])
    def test_flags_of_manifests_need_a_manifest(self, flag: str, invoke: Invoke, captured: Any) -> None:
        with pytest.raises(GymComposeError, match="need a workload NAME or --manifest"):
            validate.run(invoke(f"env validate {flag}"), captured.console)


def test_files_that_a_dataset_names_and_a_port_in_use_are_warnings(servers: Path, invoke: Invoke, captured: Any) -> None:
    import socket

    dataset = "{name:d,type:benchmark,jsonl_fpath:gone.jsonl,prepare_script:gone.py,prompt_config:gone.yaml}"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = f"env validate --config c.yaml --config m.yaml ++{LOOPER}.datasets=[{dataset}] ++head_server.port={port}"
        assert validate.run(invoke(text), captured.console) == 0
    for said in (
        "dataset 'd' (benchmark) of math_agent is not on disk: gone.jsonl; gone.py makes it.",
        "the prepare_script of dataset 'd' (benchmark) of math_agent is not on disk: gone.py.",
        "the prompt_config of dataset 'd' (benchmark) of math_agent is not on disk: gone.yaml.",
        f"port {port} of the head server is in use",
    ):
        assert said in captured.stderr


class TestManifest:
    @pytest.fixture
    def home(self, servers: Path) -> Path:
        """An environment with a manifest, found in the working directory's tree."""
        home = servers / "environments" / "counting"
        home.mkdir(parents=True)
        config = yaml.safe_load(SERVER)
        dataset = {"name": "d", "type": "example", "jsonl_fpath": "environments/counting/d.jsonl"}
        config["math"]["resources_servers"]["math"]["datasets"] = [dataset]
        manifest = {
            "name": "counting",
            "version": "1",
            "kind": "environment",
            "integration_profile": "custom-gym-agent-loop",
            "domain": "math",
            "description": "counts",
            "modality": "text",
            "authors": ["a"],
            "reward": {"range": [0, 1], "higher_is_better": True},
            "resources_server": "math",
            "agent_server": "looper",
            "datasets": [{**dataset, "num_repeats": 1}],
            "model_server": "policy_model",
        }
        (home / "config.yaml").write_text(yaml.safe_dump(config))
        (home / "manifest.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
        (home / "d.jsonl").write_text('{"responses_create_params": {"input": "x"}}\n')
        return home

    @pytest.mark.parametrize("target", ["counting", "counting --kind environment", "--manifest environments/counting/manifest.yaml"])
    def test_by_name_and_by_file(self, home: Path, target: str, invoke: Invoke, captured: Any) -> None:
        assert validate.run(invoke(f"env validate {target}"), captured.console) == 0
        assert captured.stdout.startswith("Manifest is valid: environment counting 1.\n")
        assert "resources_servers/math" in captured.stdout
        assert "1 row, " in captured.stdout
        assert captured.stderr == (
            "Warning: integration_profile 'custom-gym-agent-loop' cannot be checked: "
            "the agent's server class is not told by its entry point.\n"
        )

    def test_json_is_the_report_and_nothing_else(self, home: Path, invoke: Invoke, captured: Any) -> None:
        assert validate.run(invoke("env validate counting --json"), captured.console) == 0
        report = json.loads(captured.stdout)
        assert report["name"] == "counting"
        assert [component["implementation"] for component in report["components"]] == ["math", "looper", "runtime-selected"]

    def test_sync_writes_the_mirror(self, home: Path, invoke: Invoke, captured: Any) -> None:
        path = home / "manifest.yaml"
        path.write_text(path.read_text().replace("looper", "other"))
        with pytest.raises(ConfigError, match="out of date: agent_server"):
            validate.run(invoke("env validate counting"), captured.console)
        assert validate.run(invoke("env validate counting --sync"), captured.console) == 0
        assert captured.stdout.endswith("Written anew from the config: agent_server.\n")
        assert "looper" in path.read_text()

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ("countin", "unknown environment 'countin'. Did you mean 'counting'?"),
            ("counting --kind benchmark", "of kind environment, not benchmark"),
            ("counting --manifest m.yaml", "name two manifests"),
            ("--kind environment --manifest m.yaml", "--manifest names a file"),
            ("counting ++policy_model_name=m", "policy_model_name has no place here"),
            ("--manifest gone.yaml", "there is no such manifest"),
        ],
    )
    def test_what_is_refused(self, home: Path, arguments: str, said: str, invoke: Invoke, captured: Any) -> None:
        with pytest.raises(GymComposeError, match=said.replace("?", r"\?")):
            validate.run(invoke(f"env validate {arguments}"), captured.console)

    def test_a_workload_without_a_manifest_names_the_other_way(self, home: Path, invoke: Invoke, captured: Any) -> None:
        (home / "manifest.yaml").unlink()
        with pytest.raises(GymComposeError, match=r"has no manifest.*gym env validate --environment counting"):
            validate.run(invoke("env validate counting"), captured.console)
