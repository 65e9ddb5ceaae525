"""A manifest against its config, its data and the code that it names (contract-data 3.9)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gym_compose.config import ConfigError
from gym_compose.config.errors import ConfigMissingValuesError, EnvironmentValidationError, ManifestError
from gym_compose.tasks.validation import ManifestReport, validate_manifest

DATASET = {
    "name": "demo",
    "type": "benchmark",
    "jsonl_fpath": "benchmarks/demo/d.jsonl",
    "prepare_script": "benchmarks/demo/prepare.py",
    "prompt_config": "benchmarks/demo/p.yaml",
    "num_repeats": 2,
}
CONFIG: dict[str, Any] = {
    "demo_rs": {"resources_servers": {"demo": {"entrypoint": "app.py", "domain": "math", "grading_mode": "strict", "datasets": [DATASET]}}},
    "demo_agent": {
        "responses_api_agents": {
            "simple_agent": {
                "entrypoint": "app.py",
                "resources_server": {"type": "resources_servers", "name": "demo_rs"},
                "model_server": {"type": "responses_api_models", "name": "policy_model"},
            }
        }
    },
    "demo_env": {
        "environment_servers": {
            "legacy_agent": {"entrypoint": "app.py", "agent_server": {"type": "responses_api_agents", "name": "demo_agent"}}
        }
    },
}
MANIFEST: dict[str, Any] = {
    "name": "demo",
    "version": "0.1.0",
    "kind": "benchmark",
    "integration_profile": "custom-gym-verifier",
    "domain": "math",
    "description": "d",
    "modality": "text",
    "authors": ["a"],
    "reward": {"range": [0, 1], "higher_is_better": True},
    "resources_server": "demo",
    "agent_server": "simple_agent",
    "datasets": [DATASET],
    "model_server": "policy_model",
    "grading_mode": "strict",
    "canonical_split": "benchmark",
    "standard_prompt_config": "benchmarks/demo/p.yaml",
}


class Workload:
    """A whole benchmark on disk that is right; every test makes one thing wrong."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "tree" / "benchmarks" / "demo"
        self.home.mkdir(parents=True)
        self.config = copy.deepcopy(CONFIG)
        self.manifest = copy.deepcopy(MANIFEST)
        self.write("d.jsonl", '{"q": "x"}\n{"q": "y", "responses_create_params": {"temperature": 0.5}}\n')
        self.write("prepare.py", "def prepare():\n    return 'x'\n")
        self.write("p.yaml", 'user: "Say {q}"\n')

    def write(self, name: str, text: str) -> None:
        (self.home / name).write_text(text)

    @property
    def server(self) -> dict[str, Any]:
        return self.config["demo_rs"]["resources_servers"]["demo"]  # type: ignore[no-any-return]

    @property
    def relay(self) -> dict[str, Any]:
        return self.config["demo_env"]["environment_servers"]["legacy_agent"]  # type: ignore[no-any-return]

    def check(self, **options: Any) -> ManifestReport:
        self.write("config.yaml", yaml.safe_dump(self.config, sort_keys=False))
        self.write("manifest.yaml", yaml.safe_dump(self.manifest, sort_keys=False))
        (self.root / "cwd").mkdir(exist_ok=True)
        return validate_manifest(self.home / "manifest.yaml", cwd=self.root / "cwd", environ={}, **options)


@pytest.fixture
def workload(tmp_path: Path) -> Workload:
    return Workload(tmp_path)


def test_the_report(workload: Workload) -> None:
    report = workload.check().as_json()
    home = str(workload.home)
    assert report == {
        "name": "demo",
        "version": "0.1.0",
        "kind": "benchmark",
        "declared_profile": "custom-gym-verifier",
        "inferred_profile": "custom-gym-verifier",
        "profile_evidence": "the agent is simple_agent",
        "manifest_path": f"{home}/manifest.yaml",
        "config_path": f"{home}/config.yaml",
        "components": (
            {
                "role": "resources_server",
                "name": "demo_rs",
                "implementation": "demo",
                "boundary": "resources_servers",
                "entrypoint": "app.py",
            },
            {
                "role": "agent_server",
                "name": "demo_agent",
                "implementation": "simple_agent",
                "boundary": "responses_api_agents",
                "entrypoint": "app.py",
            },
            {
                "role": "model_server",
                "name": "policy_model",
                "implementation": "runtime-selected",
                "boundary": "responses_api_models",
                "entrypoint": "app.py",
            },
        ),
        "datasets": ({"name": "demo", "type": "benchmark", "path": f"{home}/d.jsonl", "rows": 2, "prompt_config": f"{home}/p.yaml"},),
        "rollout_driver": None,
        "grading_mode": "strict",
        "synchronized_fields": (),
        "warnings": (),
    }


def test_env_yaml_and_a_deeper_interpolation_do_not_matter(workload: Workload) -> None:
    (workload.root / "cwd").mkdir()
    (workload.root / "cwd" / "env.yaml").write_text("demo_rs: {resources_servers: {demo: {grading_mode: lenient}}}\n")
    workload.server["judge"] = {"key": "${oc.env:NOT_SET_HERE}"}
    assert workload.check().grading_mode == "strict"


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        (lambda w: w.server.update(grading_mode="lenient"), ("grading_mode",)),
        (lambda w: w.server.pop("grading_mode"), ("grading_mode",)),
        (lambda w: w.server["datasets"][0].update(num_repeats=3), ("datasets",)),
        (lambda w: w.config["demo_rs"].update(resources_servers={"other": w.server}), ("resources_server",)),
        (
            lambda w: w.config["demo_agent"].update(
                responses_api_agents={"hermes_agent": w.config["demo_agent"]["responses_api_agents"]["simple_agent"]}
            ),
            ("agent_server",),
        ),
        (lambda w: w.manifest.update(model_server="x", resources_server="y"), ("resources_server", "model_server")),
    ],
)
def test_a_mirror_that_is_out_of_date_is_an_error_and_sync_mends_it(
    workload: Workload, change: Callable[[Workload], Any], fields: tuple[str, ...]
) -> None:
    change(workload)
    with pytest.raises(EnvironmentValidationError, match=rf"out of date: {', '.join(fields)}\..*--sync") as caught:
        workload.check()
    assert len(caught.value.details) == len(fields)
    before = (workload.home / "manifest.yaml").read_text()
    assert workload.check(sync=True).synchronized_fields == fields
    assert (workload.home / "manifest.yaml").read_text() != before
    workload.manifest = yaml.safe_load((workload.home / "manifest.yaml").read_text())
    assert workload.check().synchronized_fields == ()


def test_sync_writes_nothing_when_something_else_is_wrong(workload: Workload) -> None:
    workload.server["grading_mode"] = "lenient"
    workload.write("d.jsonl", "")
    with pytest.raises(EnvironmentValidationError, match="has no rows"):
        workload.check(sync=True)
    assert yaml.safe_load((workload.home / "manifest.yaml").read_text())["grading_mode"] == "strict"


def test_what_sync_cannot_make_right(workload: Workload) -> None:
    workload.config["rollout_collection_driver"] = "m:f"
    with pytest.raises(EnvironmentValidationError, match="rollout_driver belongs to"):
        workload.check(sync=True)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"d.jsonl": None}, r"'demo' is not on disk.*prepare.py makes it"),
        ({"d.jsonl": ""}, "has no rows"),
        ({"d.jsonl": '{"q": 1}\n{'}, r"d\.jsonl, line 2: not valid JSON"),
        ({"d.jsonl": "[1]\n"}, "line 1: a row is a JSON object"),
        ({"d.jsonl": '{"q": "x"}\n\n'}, "line 2: blank line"),
        ({"d.jsonl": '{"z": 1}\n'}, "names the field 'q'"),
        ({"d.jsonl": '{"q": "x", "responses_create_params": {"input": "y"}}\n'}, "its dataset a prompt template"),
        ({"d.jsonl": '{"q": "x", "responses_create_params": []}\n'}, "is no object"),
        ({"d.jsonl": '{"q": "x", "responses_create_params": {"foo": 1}}\n'}, r"responses_create_params\.foo"),
        ({"d.jsonl": '{"q": "x", "_ng_rollout_id": 5}\n'}, "_ng_rollout_id"),
        ({"prepare.py": None}, "the prepare_script of dataset 'demo' does not exist"),
        ({"prepare.py": "async def prepare(): pass\n"}, r"has no function prepare\(\)"),
        ({"prepare.py": "def (\n"}, "cannot be read as Python"),
        ({"p.yaml": None}, "p.yaml is not on disk"),
        ({"p.yaml": "system: x\n"}, "a prompt has the text `user`"),
        ({"p.yaml": 'user: "{q} {"\n'}, "cannot be filled"),
    ],
)
def test_data_that_cannot_be_run(workload: Workload, files: dict[str, str | None], said: str) -> None:
    for name, text in files.items():
        if text is None:
            (workload.home / name).unlink()
        else:
            workload.write(name, text)
    with pytest.raises(EnvironmentValidationError, match=said):
        workload.check()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('{"responses_create_params": {"input": "x"}}', None),
        ('{"responses_create_params": {"input": [{"role": "user", "content": "x"}]}}', None),
        ('{"q": "x"}', "declared prepared"),
        ('{"responses_create_params": null}', "is no object"),
        ('{"responses_create_params": {"input": "x", "stream": true}}', "stream"),
    ],
)
def test_prepared_prompts_stand_in_the_rows(workload: Workload, row: str, said: str | None) -> None:
    workload.manifest.update(prompt_source="prepared")
    del workload.manifest["standard_prompt_config"]
    for holder in (workload.manifest, workload.server):
        holder["datasets"] = [{key: value for key, value in DATASET.items() if key != "prompt_config"}]
    workload.write("d.jsonl", row + "\n")
    if said is None:
        assert workload.check().datasets[0].prompt_config is None
        return
    with pytest.raises(EnvironmentValidationError, match=said):
        workload.check()


def _routed(workload: Workload) -> None:
    workload.server["datasets"][0]["taskset"] = "t"
    workload.config["environment_server_routes"] = {"t": "demo_env"}
    workload.relay["resources_server"] = {"type": "resources_servers", "name": "demo_rs"}


def _two_agents(workload: Workload) -> None:
    _routed(workload)
    workload.relay["user"] = workload.relay.pop("agent_server")
    workload.relay["assistant"] = {"type": "responses_api_agents", "name": "demo_agent"}


def _two_agents_and_a_first(workload: Workload) -> None:
    _two_agents(workload)
    workload.relay["agent_server"] = workload.relay["user"]


def _routed_and_pinned(workload: Workload) -> None:
    _routed(workload)
    workload.server["datasets"][0]["agent"] = "demo_agent"


def _beside_a_pinned_one(workload: Workload) -> None:
    """The pin of a flat dataset is not one of the taskset beside it."""
    _routed(workload)
    second = {**DATASET, "name": "flat"}
    workload.server["datasets"].append({**second, "agent": "demo_agent"})
    workload.manifest["datasets"] = [DATASET, second]


def _to_another(workload: Workload) -> None:
    _beside_a_pinned_one(workload)
    workload.config["y"] = copy.deepcopy(workload.config["demo_agent"])
    workload.relay["agent_server"]["name"] = "y"
    workload.config["demo_env2"] = {
        "environment_servers": {
            "legacy_agent": {"entrypoint": "app.py", "agent_server": {"type": "responses_api_agents", "name": "demo_agent"}}
        }
    }


def _pins(workload: Workload) -> None:
    workload.server["datasets"] = [{**DATASET, "agent": "demo_agent"}, {**DATASET, "name": "b", "agent": "x"}]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_routed, None),
        (_two_agents, r"taskset 't' of 'demo_rs' is routed to 'demo_env', which fronts several agents.*cannot describe this taskset"),
        (_two_agents_and_a_first, None),
        (_routed_and_pinned, "pins agent 'demo_agent', but a taskset is routed"),
        (_beside_a_pinned_one, None),
        (_to_another, r"the tasksets of 'demo_rs' are routed to several agents: demo_agent, y"),
        (_pins, "pin several agents: demo_agent, x"),
        (lambda w: w.server["datasets"][0].update(taskset="t"), "'t' has no route"),
        (lambda w: w.server["datasets"][0].update(agent="demo_agent"), None),
        (lambda w: w.server["datasets"][0].update(agent="nope"), "pins agent 'nope'"),
        (lambda w: (w.config.pop("demo_agent"), w.config.pop("demo_env")), "no agent uses"),
        (lambda w: w.config.update(x=w.config["demo_agent"]), "2 agents use"),
        (
            lambda w: w.config.update(r2={"resources_servers": {"b": copy.deepcopy(w.server)}}),
            "2 instances declare.*dataset_owner",
        ),
        (lambda w: w.server.pop("datasets"), "0 instances declare datasets"),
        (lambda w: w.manifest.update(dataset_owner="demo_rs"), None),
        (lambda w: w.manifest.update(dataset_owner="demo_agent"), "is no resources server or agent with datasets"),
        (lambda w: w.manifest.update(name="other"), "its place is that of 'demo'"),
        (lambda w: w.manifest.update(kind="environment"), "its place is for kind 'benchmark'"),
        (lambda w: w.manifest.update(config_path="gone.yaml"), "does not exist"),
        (lambda w: w.manifest.update(standard_prompt_config="other.yaml"), "is not the standard_prompt_config"),
    ],
)
def test_one_agent_and_one_set_of_datasets(workload: Workload, change: Callable[[Workload], Any], said: str | None) -> None:
    change(workload)
    if said is None:
        assert workload.check().components[1].name == "demo_agent"
        return
    with pytest.raises(EnvironmentValidationError, match=said):
        workload.check()


def test_rows_of_a_taskset_that_are_no_run_requests_are_said_to_be_beyond_a_manifest(workload: Workload) -> None:
    _routed(workload)
    workload.manifest.update(prompt_source="agent", standard_prompt_config="benchmarks/demo/p.yaml")
    for holder in (workload.manifest, workload.server):
        holder["datasets"] = [{key: value for key, value in {**holder["datasets"][0]}.items() if key != "prompt_config"}]
    workload.write("d.jsonl", '{"question": "x"}\n')
    with pytest.raises(EnvironmentValidationError, match="no run request: responses_create_params") as caught:
        workload.check()
    assert caught.value.where == f"{workload.home}/d.jsonl, line 1"
    assert "cannot describe tasks of another shape (taskset 't')" in (caught.value.hint or "")


def test_errors_of_the_config_are_its_own(workload: Workload) -> None:
    workload.config["z"] = "???"
    with pytest.raises(ConfigMissingValuesError):
        workload.check()
    workload.write("manifest.yaml", "a: [")
    with pytest.raises(ManifestError):
        validate_manifest(workload.home / "manifest.yaml", cwd=workload.root, environ={})
    assert issubclass(EnvironmentValidationError, ConfigError)


@pytest.mark.parametrize(("module", "said"), [("run", None), ("no", "has no function 'no'"), ("gone", "is not found")])
def test_a_rollout_driver_is_a_function_of_a_module_in_a_root(workload: Workload, module: str, said: str | None) -> None:
    reference = "drivers.missing:run" if module == "gone" else f"drivers.mine:{module}"
    (workload.root / "tree" / "drivers").mkdir()
    (workload.root / "tree" / "drivers" / "mine.py").write_text("async def run():\n    pass\n")
    workload.config["rollout_collection_driver"] = reference
    workload.manifest.update(integration_profile="external-rollout-driver", rollout_driver=reference)
    if said is None:
        assert workload.check().inferred_profile == "external-rollout-driver"
        return
    with pytest.raises(EnvironmentValidationError, match=said):
        workload.check()


def test_a_profile_that_the_code_does_not_bear_out_is_a_warning(workload: Workload) -> None:
    workload.manifest["integration_profile"] = "custom-gym-agent-loop"
    assert workload.check().warnings == (
        "integration_profile is 'custom-gym-agent-loop', and the code speaks for 'custom-gym-verifier': the agent is simple_agent.",
    )
