"""From arguments to override tokens (contract-config 2.1)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gym_compose.cli.commands import COMMANDS
from gym_compose.cli.translate import Invocation, Stop, resolve_command, translate

FILES = {
    "bench": "benchmarks/bench/config.yaml",
    "web": "environments/web/config.yaml",
    "math": "resources_servers/math/configs/math.yaml",
    "code": "resources_servers/code/configs/code.yaml",
    "vllm": "responses_api_models/vllm/configs/vllm.yaml",
    "hermes": "responses_api_agents/hermes/configs/hermes.yaml",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in FILES.values():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("a: 1\n")
    return tmp_path


def call(text: str, cwd: Path, environ: dict[str, str] | None = None) -> Invocation:
    found = translate(text.split(), cwd=cwd, environ=environ or {})
    assert isinstance(found, Invocation), found
    return found


def stop(text: str, cwd: Path) -> Stop:
    found = translate(text.split(), cwd=cwd, environ={})
    assert isinstance(found, Stop), found
    return found


@pytest.mark.parametrize(
    ("text", "target", "overrides"),
    [
        ("env start --config a.yaml --config b.yaml", "run", ["+config_paths=[a.yaml,b.yaml]"]),
        ("env start --conf a.yaml", "run", ["+config_paths=[a.yaml]"]),
        ("env start --config=a.yaml ++x=1 +y={a:2} ~z", "run", ["+config_paths=[a.yaml]", "++x=1", "+y={a:2}", "~z"]),
        ("env start +config_paths=[z.yaml] --config a.yaml", "run", ["+config_paths=[a.yaml,z.yaml]"]),
        ("env start ++config_paths=[z.yaml] --config a.yaml", "run", ["+config_paths=[a.yaml]", "++config_paths=[z.yaml]"]),
        ("env start +config_paths=[]", "run", []),
        ("env start -m gpt --model-url http://h/v1 --model-api-key k", "run",
         ["+policy_model_name=gpt", "+policy_base_url=http://h/v1", "+policy_api_key=k"]),
        ("eval run --no-serve --strict-compatibility", "collect_rollouts", ["++compose.strict=true"]),
        ("eval reverify --strict-compatibility", "reverify_rollouts", ["++compose.strict=true"]),
        ("env start --allow-unsupported-pairing", "run", ["+allow_unsupported_pairing=true"]),
        ("-v env start ++x=1", "run", ["+verbose=true", "++x=1"]),
        ("env start -v ++x=1", "run", ["+verbose=true", "++x=1"]),
        ("env start ++x=-1", "run", ["++x=-1"]),
        ("env start --engine process -p me", "run", []),
        ("--json env status", "status", ["+json=true"]),
        ("env status --json ++head_server.port=1", "status", ["+json=true", "++head_server.port=1"]),
        ("env resolve --config a", "dump_config", ["+config_paths=[a]"]),
        ("env validate name", "validate", ['+onboarding_name="name"']),
        ("env validate +x=1 --strict", "validate", ["+x=1", "+strict=true"]),
        ("env validate --kind benchmark --manifest m.yaml", "validate", ["+catalog_kind=benchmark", '+manifest_path="m.yaml"']),
        ("env prefetch --config a", "prefetch", ["+config_paths=[a]"]),
        ("env prefetch --config=--", "prefetch", ["+config_paths=[--]"]),
        ("env start --model=--", "run", ["+policy_model_name=--"]),
        ("list agents +a=1 ++b=2", "list_agents", ["+component_name=+a=1", "++b=2"]),
        ("list benchmarks a=1", "list_environments", ["+catalog_kind=benchmark", "+component_name=a=1"]),
        ("env init --resources-server x", "init_resources_server", ["+entrypoint=resources_servers/x"]),
        ("env init --server environment_servers/x", "init_resources_server", ["+entrypoint=environment_servers/x"]),
        ("env init --benchmark b --reward-range 0 1 --higher-is-better", "init_environment",
         ["+scaffold_kind=benchmark", '+scaffold_name="b"', "+reward_range=[0.0,1.0]", "+higher_is_better=true"]),
        ("env schema --resources-server x", "show_schema", ["+entrypoint=resources_servers/x"]),
        ("env packages --resources-server x --outdated --json", "pip_list",
         ["+entrypoint=resources_servers/x", "+outdated=true", "+format=json"]),
        ("env test --all", "test_all", []),
        ("env test --resources-server x", "test", ["+entrypoint=resources_servers/x"]),
        ("env test wl --json", "test_environment_manifest", ['+onboarding_name="wl"', "+json=true"]),
        ("eval run -i in -o out --limit 3 --concurrency 4 --no-serve", "collect_rollouts",
         ["+input_jsonl_fpath=in", "+output_jsonl_fpath=out", "+limit=3", "+num_samples_in_parallel=4"]),
        ("eval run --split train --resume -a me --temperature 0.5 --top-p 1 --max-output-tokens 9", "e2e_rollout_collection",
         ["+resume_from_cache=true", "+agent_name=me", "+split=train", "+responses_create_params.temperature=0.5",
          "+responses_create_params.top_p=1", "+responses_create_params.max_output_tokens=9"]),
        ("eval run --health-check-ignore a,b --no-health-check --disable-aggregation", "e2e_rollout_collection",
         ["+disable_aggregation=true", "+disable_health_check=true", '+health_check_ignored_checks=["a","b"]']),
        ("eval run --pro p.yaml", "e2e_rollout_collection", ["+prompt_config=p.yaml"]),
        ("eval compare --baseline a b.jsonl= --candidates x,,y", "compare",
         ['+baseline_rollouts_jsonl_fpath="a"', '+candidate_rollouts_jsonl_fpaths=["x","y"]', "b.jsonl="]),
        ("dataset upload --revision 3 --name n", "upload_jsonl_dataset_to_hf_cli", ["+dataset_name=n", "+version=3", "+revision=3"]),
        ("dataset upload --storage gitlab", "upload_jsonl_dataset_cli", []),
        ("dataset download --revision 3", "download_jsonl_dataset_from_hf_cli", ["+version=3"]),
        ("dataset collate --mode example_validation --download", "prepare_data", ["+mode=example_validation", "+should_download=true"]),
        ("list benchmarks aime --json", "list_environments", ["+catalog_kind=benchmark", "+component_name=aime", "+json=true"]),
        ("list environments --kind benchmark --modality text", "list_environments", ["+catalog_kind=benchmark", '+modality="text"']),
        ("search math", "list_environments", ['+query="math"']),
        ("search benchmarks math", "list_environments", ["+catalog_kind=benchmark", '+query="math"']),
        ("search agents tool --json", "list_agents", ['+query="tool"', "+json=true"]),
        ("dev test", "dev_test", []),
        ("compose -p me down", "compose_down", []),
        ("compose logs a b --tail 3", "compose_logs", []),
    ],
)  # fmt: skip
def test_flags_become_tokens_in_the_order_of_the_table(tmp_path: Path, text: str, target: str, overrides: list[str]) -> None:
    found = call(text, tmp_path)
    assert (found.target, list(found.overrides)) == (target, overrides)


def test_categories_are_ordered_whatever_the_command_line_says(tree: Path) -> None:
    found = call(
        "env start +config_paths=[raw.yaml] --agent-type hermes --model-type vllm --resources-server code --resources-server math "
        "--environment web --benchmark bench --config first.yaml",
        tree,
    )
    order = ["bench", "web", "code", "math", "vllm", "hermes"]
    files = ["first.yaml", *(str(tree / FILES[name]) for name in order), "raw.yaml"]
    assert found.overrides == (f"+config_paths=[{','.join(files)}]",)


def test_search_dirs_come_before_extra_roots_and_the_working_directory(tree: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / FILES["math"]).parent.mkdir(parents=True)
    (other / FILES["math"]).write_text("a: 2\n")
    found = call("env start --search-dir other --resources-server math", tree, {"NEMO_GYM_EXTRA_ROOTS": "/nowhere"})
    assert found.overrides == (f"+config_paths=[{other / FILES['math']}]",)
    assert found.environ["NEMO_GYM_EXTRA_ROOTS"] == os.pathsep.join(["other", "/nowhere"])
    assert len(found.warnings) == 1
    assert "shadows" in found.warnings[0]


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ("", 1, "usage: gym "),
        ("env", 1, "usage: gym env "),
        ("compose", 1, "usage: gym compose "),
        ("--help", 0, "examples:"),
        ("env start --help", 0, "examples:"),
        ("env stat", 2, "Did you mean 'start'?"),
        ("evn start", 2, "Did you mean 'env'?"),
        ("env start --confg x", 2, "unrecognized arguments: --confg. Did you mean '--config'?"),
        ("env start -z", 2, "unrecognized arguments: -z."),
        ("env start --json", 2, "unrecognized arguments: --json."),
        ("--json env start", 2, "--json is not supported by this command."),
        ("env start --resources-server nope", 2, "implies the config resources_servers/nope/configs/nope.yaml"),
        ("eval run --no-serve --agent-type hermes", 2, "--agent-type cannot be combined with --no-serve"),
        ("eval run --health-check-ignore a,,b", 2, "must not hold empty entries"),
        ("eval lists", 2, "invalid choice: 'lists'"),
        ("dataset upload --storage s3", 2, "invalid choice: 's3'"),
        ("env test", 2, "there is nothing to test"),
        ("env test --kind benchmark", 2, "need a workload name"),
        ("env test wl --all", 2, "takes no target"),
        ("env test wl --resources-server x", 2, "not both"),
        ("env init --profile external-agent-loop", 2, "need --environment or --benchmark"),
        ("env init --environment a --benchmark b", 2, "not allowed with argument"),
        ("env init --server environment_servers/a --resources-server b", 2, "not both"),
        ("env init --server environment_servers/a --benchmark b", 2, "cannot be made in one call"),
        ("search", 2, "required: QUERY"),
        ("search things math", 2, "invalid choice: 'things'"),
        ("eval health-check", 2, "required: RUN_DIR"),
        ("eval health-check runs +a=1", 2, "+a=1 has no place here"),
        ("eval submit", 2, "required: --config"),
        ("compose up stray", 2, "unexpected argument 'stray'"),
        ("compose logs a -f b", 2, "unexpected argument 'b'"),
        ("compose logs --tail x", 2, "invalid int value"),
        ("compose up --engine podman", 2, "invalid choice: 'podman'"),
        ("env start --mod x", 2, "ambiguous option"),
    ],
)
def test_where_the_command_line_ends(tmp_path: Path, text: str, status: int, message: str) -> None:
    found = stop(text, tmp_path)
    assert found.exit_status == status
    shown = found.stderr if status == 2 else found.stdout
    assert message in " ".join(shown.split())
    assert bool(found.stdout) is (status != 2)


def test_version(tmp_path: Path) -> None:
    assert stop("--version", tmp_path).version
    assert stop("--version --json", tmp_path).json
    found = resolve_command(["--version", "--json", "env", "start", "++a=1"], cwd=tmp_path, environ={})
    assert (found.target, found.overrides) == ("version", ("+json=true", "++a=1"))


WORDS = sorted({word for name in COMMANDS for word in name.split()})
FLAGS = ("config", "model", "json", "all", "kind", "input", "output")
OPTIONS = [option for flag in FLAGS for option in (f"--{flag}", f"--{flag}=--", f"--{flag[:3]}")]
ODD = ["--", "-h", "-v", "--version", "+a=1", "~a", "+config_paths=[x]"]


@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(sorted(COMMANDS)),
    st.lists(st.one_of(st.sampled_from([*WORDS, *OPTIONS, *ODD]), st.text(max_size=6)), max_size=6),
)
def test_any_arguments_are_understood_or_end_with_a_status(tmp_path: Path, name: str, words: list[str]) -> None:
    found = translate([*name.split(), *words], cwd=tmp_path, environ={})
    assert isinstance(found, Invocation) or found.exit_status in (0, 1, 2)


class TestResolveCommand:
    def test_a_config_is_merged_with_secrets_hidden(self, tmp_path: Path) -> None:
        (tmp_path / "c.yaml").write_text("policy_api_key: sk-1\nname: ${policy_api_key}x\nn: 1\n")
        found = resolve_command(["env", "start", "--config", "c.yaml", "++n=2"], cwd=tmp_path, environ={})
        assert (found.target, found.overrides, found.exit, found.error) == ("run", ("+config_paths=[c.yaml]", "++n=2"), None, None)
        assert found.merged is not None
        assert [found.merged[key] for key in ("policy_api_key", "name", "n")] == ["****", "****x", 2]

    def test_an_error_keeps_target_and_overrides_and_is_raised_by_merged(self, tmp_path: Path) -> None:
        found = resolve_command(["env", "start", "--config", "gone.yaml"], cwd=tmp_path, environ={})
        assert found.target == "run"
        assert type(found.error).__name__ == "ConfigPathNotFoundError"
        with pytest.raises(FileNotFoundError, match=r"gone\.yaml"):
            _ = found.merged

    @pytest.mark.parametrize(
        ("argv", "expected"),
        [
            (["env", "stat"], {"exit": 2, "target": None}),
            ([], {"exit": 1, "target": None}),
            (["--version"], {"exit": None, "target": "version"}),
            (["--version", "--json"], {"exit": None, "target": "version", "overrides": ("+json=true",)}),
            (["list", "models"], {"exit": None, "target": "list_models", "merged": None}),
        ],
    )
    def test_without_a_config(self, tmp_path: Path, argv: list[str], expected: dict[str, Any]) -> None:
        found = resolve_command(argv, cwd=tmp_path, environ={})
        assert {key: getattr(found, key) for key in expected} == expected

    def test_roots_come_first_and_the_install_root_last(self, tree: Path, tmp_path: Path) -> None:
        empty = tmp_path / "empty"
        empty.mkdir()
        for options in ({"roots": [tree]}, {"install_root": tree}):
            found = resolve_command(["env", "start", "--resources-server", "math"], cwd=empty, environ={}, **options)
            assert found.overrides == (f"+config_paths=[{tree / FILES['math']}]",)
            assert found.merged is not None
            assert found.merged["a"] == 1

    def test_nothing_is_printed(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        resolve_command(["env", "start", "--nope"], cwd=tmp_path, environ={})
        resolve_command(["--help"], cwd=tmp_path, environ={})
        assert capsys.readouterr() == ("", "")
