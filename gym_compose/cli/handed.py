"""Commands of the contract whose work is not ours: their flags are known, so that usage errors and ``resolve_command`` are the contract's.

What they do is left to NeMo Gym's own CLI where it is installed (contract-config 2.2).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from gym_compose.cli.command import (
    INPUT,
    JSON,
    KIND,
    SEARCH_DIR,
    SERVER,
    STORAGE,
    WORKLOAD,
    Command,
    Handed,
    Refused,
    Tokens,
)
from gym_compose.cli.flags import Json, Local, LooseList, Positional, Special, StrictList, Switch, Value
from gym_compose.wire.errors import UsageError


def _has(tokens: Tokens, *keys: str) -> bool:
    return any(token.lstrip("+").split("=", 1)[0] in keys for token in tokens)


def _env_test(args: argparse.Namespace, tokens: Tokens) -> str:
    workload, server = _has(tokens, "onboarding_name"), _has(tokens, "entrypoint")
    if workload and server:
        raise UsageError("give a workload name or --resources-server, not both.")
    if args.all and (workload or server):
        raise UsageError("--all tests every resources server: it takes no target.")
    if not workload and _has(tokens, "catalog_kind", "update_expected", "json"):
        raise UsageError("--kind, --update-expected and --json need a workload name.")
    if workload:
        return "test_environment_manifest"
    if server:
        return "test"
    if not args.all:
        raise UsageError("there is nothing to test.", hint="Give a workload name, --resources-server NAME or --all.")
    return "test_all"


def _health_check(_: argparse.Namespace, tokens: Tokens) -> str:
    strange = [token for token in tokens if not token.startswith("+json=")]
    if strange:
        raise UsageError(f"health-check reads a directory, no config: {' '.join(strange)} has no place here.")
    return "health_check_rollouts"


def _by_storage(hf: str, gitlab: str) -> Callable[[argparse.Namespace, Tokens], str]:
    return lambda args, _: hf if args.storage == "hf" else gitlab


def _declare_revision(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--revision", help="revision (Hugging Face) or version (GitLab)")


def _revision_tokens(args: argparse.Namespace) -> list[str]:
    return [] if args.revision is None else [f"+version={args.revision}", f"+revision={args.revision}"]


HANDED: dict[str, Command] = {
    "env schema": Command(
        "JSON schema of a resources server's task data",
        Handed("it imports the server's code, which needs the server's own environment."),
        "show_schema",
        (SERVER, SEARCH_DIR),
    ),
    "env packages": Command(
        "packages of a server's virtual environment",
        Refused("servers have images here, no virtual environments; gym compose plan lists what is installed in them."),
        "pip_list",
        (SERVER, SEARCH_DIR, Switch("outdated", "outdated ones only", key="outdated"), Json("json", "print JSON", key="format=json")),
    ),
    "env test": Command(
        "tests of a server or workload",
        Handed("run a native server's tests with pytest: pytest servers/resources_servers/NAME/tests."),
        _env_test,
        (
            WORKLOAD,
            KIND,
            Switch("update-expected", "write new expectations", key="update_expected"),
            JSON,
            SERVER,
            SEARCH_DIR,
            Local("all", "every resources server", options=(("action", "store_true"),)),
        ),
    ),
    "env publish": Command(
        "checks before a workload is published",
        Handed("manifests and their catalog belong to NeMo Gym."),
        "publish_environment_manifest",
        (WORKLOAD, KIND, JSON, SEARCH_DIR),
    ),
    "eval health-check": Command(
        "look for broken rollouts in a run directory",
        Handed("failures of a run stand in its _failures.jsonl, by kind."),
        _health_check,
        (
            Positional("run_dir", "directory of the run", metavar="RUN_DIR", nargs=None),
            Local("rollouts-file", "rollouts file (default: rollouts.jsonl)", metavar="PATH", options=(("dest", "rollout_file"),)),
            Local("workers", "processes", options=(("type", int),)),
            StrictList("ignore-checks", "checks that do not count", aliases=("--ignore",), metavar="A[,B…]"),
            JSON,
        ),
    ),
    "eval export": Command(
        "rollouts as ATIF trajectories",
        Handed("the ATIF writer is NeMo Gym's."),
        "export_rollouts_as_atif",
        (
            Value("format", "format", key="format", choices=("atif",)),
            Value("rollouts", "rollouts file", key="rollouts_jsonl_fpath", quoted=True),
            Value("output-dir", "new directory", key="output_dirpath", quoted=True),
            Value("session-id", "id of the run", key="session_id", quoted=True),
            Value("agent-version", "version of the agent", key="agent_version", quoted=True),
        ),
    ),
    "eval submit": Command(
        "submit a job to Slurm",
        Handed("Slurm jobs are NeMo Gym's."),
        "_eval_submit",
        (
            Local("config", "submit config", aliases=("-c",), metavar="PATH", options=(("required", True),)),
            Local("dry-run", "print the job scripts", options=(("action", "store_true"),)),
            Local("resolve-only", "print the checked config", options=(("action", "store_true"),)),
            Local("json", "print JSON", options=(("action", "store_true"),)),
        ),
    ),
    "eval compare": Command(
        "compare two runs",
        Handed("the comparison is NeMo Gym's."),
        "compare",
        (
            Value("baseline", "rollouts file of the baseline", key="baseline_rollouts_jsonl_fpath", quoted=True),
            LooseList("candidates", "rollouts files of the candidates", metavar="A[,B…]", key="candidate_rollouts_jsonl_fpaths"),
            Value("baseline-agg-metrics", "its metrics file", key="baseline_aggregate_metrics_fpath", quoted=True),
            LooseList("candidates-agg-metrics", "their metrics files", metavar="A[,B…]", key="candidate_aggregate_metrics_fpaths"),
            Value("agent", "agent to compare", key="agent_name"),
            Value("baseline-agent", "agent of the baseline", key="baseline_agent_name"),
            LooseList("candidate-agents", "agents of the candidates", metavar="A[,B…]", key="candidate_agent_names"),
            Value("output-dir", "directory of the report", aliases=("-o",), key="output_dirpath", quoted=True),
            Value("report-format", "md, json or both", key="report_format", choices=("md", "json", "both")),
        ),
    ),
    "dataset upload": Command(
        "upload a dataset",
        Handed("uploads need NeMo Gym's storage clients."),
        _by_storage("upload_jsonl_dataset_to_hf_cli", "upload_jsonl_dataset_cli"),
        (
            STORAGE,
            INPUT,
            Value("name", "name of the dataset", key="dataset_name"),
            Special("revision", "", declare_with=_declare_revision, tokens=_revision_tokens),
            Value("split", "split (Hugging Face)", key="split"),
            Switch("create-pr", "open a pull request (Hugging Face)", key="create_pr"),
        ),
    ),
    "dataset download": Command(
        "download a dataset",
        Handed("downloads need NeMo Gym's storage clients."),
        _by_storage("download_jsonl_dataset_from_hf_cli", "download_jsonl_dataset_cli"),
        (
            STORAGE,
            Value("repo-id", "repository (Hugging Face)", key="repo_id"),
            Value("name", "name of the dataset (GitLab)", key="dataset_name"),
            Value("revision", "version (GitLab)", key="version"),
            Value("artifact", "file to fetch", key="artifact_fpath"),
            Value("output", "file to write", aliases=("-o",), key="output_fpath"),
            Value("output-dir", "directory to write", key="output_dirpath"),
            Value("split", "split (Hugging Face)", key="split"),
        ),
    ),
    "dataset rm": Command(
        "delete a dataset from GitLab",
        Handed("GitLab datasets are NeMo Gym's."),
        "delete_jsonl_dataset_from_gitlab_cli",
        (Value("name", "name of the dataset", key="dataset_name"),),
    ),
    "dataset migrate": Command(
        "move a dataset from GitLab to Hugging Face",
        Handed("GitLab datasets are NeMo Gym's."),
        "upload_jsonl_dataset_to_hf_and_delete_gitlab_cli",
        (
            INPUT,
            Value("name", "name of the dataset", key="dataset_name"),
            Value("revision", "revision", key="revision"),
            Value("split", "split", key="split"),
            Switch("create-pr", "open a pull request", key="create_pr"),
        ),
    ),
    "dev test": Command(
        "tests of NeMo Gym itself",
        Refused("it tests NeMo Gym's own repository; the tests of gym_compose are run with make test."),
        "dev_test",
    ),
}
