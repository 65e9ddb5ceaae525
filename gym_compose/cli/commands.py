"""The command table: every command of the contract (contract-config 2.2) and ours, with its flags, their order and its place.

The order of flags is the order of their override tokens. ``place`` says who does the work: *native* (a function of this package),
*handed* to NeMo Gym's own CLI where it is installed, or *refused* with the reason. ``docs/commands.md`` is checked against this table.
"""

from __future__ import annotations

import argparse

from gym_compose.cli.command import (
    AGENT_TYPE,
    BENCHMARK,
    COMPOSE,
    CONFIG,
    DRY_RUN,
    ENGINE,
    ENVIRONMENT,
    HEALTH,
    INPUT,
    JSON,
    KIND,
    LISTED,
    MODEL,
    MODEL_API_KEY,
    MODEL_TYPE,
    MODEL_URL,
    NAME,
    OUTPUT,
    PAIRING,
    PROJECT,
    PUBLISH,
    RESOURCES_CONFIG,
    RUNNING,
    SEARCH_DIR,
    SELECTORS,
    START,
    WORKLOAD,
    Command,
    Native,
    Tokens,
)
from gym_compose.cli.flags import Flag, Json, Local, Positional, Switch, Value
from gym_compose.cli.handed import HANDED
from gym_compose.cli.init import INIT
from gym_compose.cli.on_datasets import ON_DATASETS
from gym_compose.cli.on_rollouts import ON_ROLLOUTS


def _eval_run(args: argparse.Namespace, _: Tokens) -> str:
    return "collect_rollouts" if args.no_serve else "e2e_rollout_collection"


_SEARCHED = {
    "benchmarks": "list_environments",
    "environments": "list_environments",
    "agents": "list_agents",
    "models": "list_models",
    "resources-servers": "list_resources_servers",
}


def _search(args: argparse.Namespace, _: Tokens) -> str:
    return _SEARCHED[args.component_type or "environments"]


def _search_lead(args: argparse.Namespace) -> tuple[str, ...]:
    kind = args.component_type
    return (f"+catalog_kind={kind.removesuffix('s')}",) if kind in ("environments", "benchmarks") else ()


def _listing(kind: str, target: str, *flags: Flag, lead: tuple[str, ...] = ()) -> Command:
    return Command(
        f"list {kind.replace('-', ' ')}, or show one", Native("listing:run"), target, (NAME, *flags, JSON, SEARCH_DIR), lead=lead
    )


GROUPS = {
    "compose": "Run a config as containers: one for each server.",
    "env": "Develop and run environments.",
    "eval": "Collect and judge rollouts.",
    "dataset": "Manage datasets.",
    "list": "List components: benchmarks, environments, agents, models, resources-servers.",
    "migrate": "Bring older configs up to date.",
    "dev": "Helpers for contributors.",
}

_QUICKSTART = "--config configs/quickstart.yaml"

_NATIVE: dict[str, Command] = {
    "compose up": Command(
        "build what is missing, start all servers, wait until they are ready",
        Native("compose:up"),
        "compose_up",
        (
            Local("detach", "return when all is ready", aliases=("-d",), ours=True, options=(("action", "store_true"),)),
            DRY_RUN,
            JSON,
            *COMPOSE,
        ),
        parses=True,
        examples=(f"gym compose up {_QUICKSTART}", "gym compose up -d --resources-server reasoning_gym --model-type openai_model"),
        exits="compose",
    ),
    "compose down": Command(
        "stop the project and remove all that is its own",
        Native("compose:down"),
        "compose_down",
        (
            Local("all", "every project below this directory", ours=True, options=(("action", "store_true"),)),
            DRY_RUN,
            JSON,
            *RUNNING,
        ),
        examples=("gym compose down", "gym compose down -p quickstart"),
        exits="compose",
    ),
    "compose ps": Command("services and their state", Native("compose:ps"), "compose_ps", (JSON, *RUNNING), exits="compose"),
    "compose logs": Command(
        "what the services printed",
        Native("compose:logs"),
        "compose_logs",
        (
            Positional("services", "services (default: all)", metavar="SERVICE", nargs="*"),
            Local("follow", "go on as lines come", aliases=("-f",), ours=True, options=(("action", "store_true"),)),
            Local("tail", "last N lines of each service", metavar="N", ours=True, options=(("type", int),)),
            JSON,
            *RUNNING,
        ),
        examples=("gym compose logs -f policy_model", "gym compose logs --tail 50"),
        exits="compose",
    ),
    "compose config": Command(
        "print the compose file", Native("compose:config"), "compose_config", (JSON, *COMPOSE), parses=True, exits="compose"
    ),
    "compose plan": Command(
        "what would run: instances, images, networks, secrets by name",
        Native("compose:plan"),
        "compose_plan",
        (JSON, *COMPOSE),
        parses=True,
        examples=(f"gym compose plan {_QUICKSTART}", f"gym compose plan --json {_QUICKSTART} ++policy_model_name=m"),
        exits="compose",
    ),
    "compose build": Command(
        "make the images that are missing, and say what is shared and what each adds",
        Native("compose:build"),
        "compose_build",
        (
            Local("upgrade", "choose all requirements' versions anew, whatever is locked", ours=True, options=(("action", "store_true"),)),
            DRY_RUN,
            JSON,
            *COMPOSE,
        ),
        parses=True,
        examples=(f"gym compose build {_QUICKSTART}", "gym compose build --upgrade --config my_config.yaml"),
        exits="compose",
    ),
    "compose doctor": Command(
        "look whether all that is needed is here; with a config, at each server",
        Native("doctor:run"),
        "compose_doctor",
        (JSON, *COMPOSE),
        parses=True,
        examples=("gym compose doctor", f"gym compose doctor {_QUICKSTART}", "gym compose doctor --engine process --json"),
        exits="compose",
    ),
    "env start": Command(
        "start the servers and keep them until Ctrl+C",
        Native("env:start"),
        "run",
        (*START, PUBLISH, ENGINE, PROJECT),
        parses=True,
        examples=(
            "gym env start --resources-server reasoning_gym --model-type openai_model",
            f"gym env start {_QUICKSTART} --engine process",
        ),
    ),
    "env status": Command("servers of the running head server", Native("env:status"), "status", (JSON,), parses=True),
    "env resolve": Command(
        "print the merged config, secrets hidden",
        Native("env:resolve"),
        "dump_config",
        (
            *START,
            Json("json", "print JSON", ours=True, key=None),
            Local("explain", "who sets this dotted key, last writer marked", metavar="KEY", ours=True),
        ),
        parses=True,
        examples=(f"gym env resolve {_QUICKSTART}", f"gym env resolve {_QUICKSTART} --explain policy_model"),
    ),
    "env validate": Command(
        "check a config, or a workload's manifest and data, without starting anything",
        Native("validate:run"),
        "validate",
        (
            WORKLOAD,
            KIND,
            Value("manifest", "manifest file to check", metavar="PATH", key="manifest_path", quoted=True),
            Switch("sync", "write what the manifest mirrors of its config anew", key="sync"),
            Switch("strict", "fail where only a model is missing", key="strict"),
            JSON,
            *START,
        ),
        parses=True,
        examples=(
            f"gym env validate {_QUICKSTART} --strict",
            "gym env validate aime24",
            "gym env validate --manifest manifest.yaml --sync",
        ),
    ),
    "env init": INIT,
    "env prefetch": Command(
        "make the images of a config before they are needed",
        Native("env:prefetch", "images instead of virtual environments"),
        "prefetch",
        (*SELECTORS, ENGINE, PROJECT),
        parses=True,
    ),
    "eval run": Command(
        "start servers, collect rollouts, stop (--no-serve: from running ones)",
        Native("eval:run"),
        _eval_run,
        (
            CONFIG,
            BENCHMARK,
            ENVIRONMENT,
            RESOURCES_CONFIG,
            MODEL_TYPE,
            SEARCH_DIR,
            Local("no-serve", "collect from servers that run already", options=(("action", "store_true"),)),
            Switch("resume", "go on with an unfinished run", key="resume_from_cache"),
            AGENT_TYPE,
            PAIRING,
            Value("agent", "agent to run the rows with", aliases=("-a",), key="agent_name"),
            INPUT,
            OUTPUT,
            Value("limit", "rows to take at most", metavar="N", key="limit"),
            Value("num-repeats", "rollouts of each row", metavar="N", key="num_repeats"),
            Switch("interleave-repeats", "all rows once, then all rows again", key="interleave_repeats"),
            Value("prompt-config", "prompt template", metavar="PATH", key="prompt_config"),
            Value("concurrency", "rollouts at a time", metavar="N", key="num_samples_in_parallel"),
            Value("split", "train, validation or benchmark", key="split"),
            MODEL,
            MODEL_URL,
            MODEL_API_KEY,
            Value("temperature", "sampling temperature", key="responses_create_params.temperature"),
            Value("top-p", "nucleus sampling", key="responses_create_params.top_p"),
            Value("max-output-tokens", "tokens of an answer at most", key="responses_create_params.max_output_tokens"),
            Switch("disable-aggregation", "no aggregate metrics at the end", key="disable_aggregation"),
            *HEALTH,
            Local("overwrite", "replace the files of an earlier run", ours=True, options=(("action", "store_true"),)),
            Switch(
                "resume-anyway",
                "go on although input or config changed; the rows stay those of the first run",
                key="resume_anyway",
                ours=True,
            ),
            Value("rollout-timeout", "seconds of a rollout at most", metavar="S", key="rollout_timeout_s", ours=True),
            Value("max-failures", "end the run at more failed rollouts: 20, or a share as 5%%", metavar="N", key="max_failures", ours=True),
            Value(
                "on-server-death",
                "when a server dies: end the run (default), or wait for it",
                key="on_server_death",
                choices=("fail", "wait"),
                ours=True,
            ),
            Switch("strict-compatibility", "NeMo Gym's behaviour wherever ours differs", key="+compose.strict", ours=True),
            PUBLISH,
            ENGINE,
            PROJECT,
            Json("json", "print the summary as JSON", ours=True, key=None),
        ),
        parses=True,
        examples=(
            f"gym eval run {_QUICKSTART} --split validation -o results/rollouts.jsonl",
            "gym eval run --no-serve -i tasks.jsonl -o results/rollouts.jsonl --concurrency 16 --num-repeats 2",
            "gym eval run --no-serve -i tasks.jsonl -o results/rollouts.jsonl --resume",
        ),
    ),
    "eval list": Command(
        "list benchmarks, or the datasets of a config, and who runs them",
        Native("eval_list:run"),
        "list_benchmarks",
        (LISTED, JSON, *SELECTORS),
        parses=True,
        examples=(
            "gym eval list --json",
            "gym eval list aime24",
            f"gym eval list {_QUICKSTART}",
        ),
    ),
    "eval attach": Command(
        "follow a run whose command has gone",
        Native("eval:attach"),
        "eval_attach",
        (
            Positional("run", "run id (default: the one that is going on)", metavar="RUN"),
            *RUNNING,
            Json("json", "print the summary as JSON", ours=True, key=None),
        ),
        examples=("gym eval attach",),
    ),
    "migrate environment-servers": Command(
        "add the environment servers that agents need to config files",
        Native("migrate:environment_servers"),
        "migrate_environment_servers",
        (
            Positional("paths", "config file or directory (default: the component directories here)", metavar="PATH", nargs="*"),
            Local("check", "write nothing; exit 1 when something would be added", ours=True, options=(("action", "store_true"),)),
            Json("json", "print the report as JSON", ours=True, key=None),
            SEARCH_DIR,
        ),
        examples=("gym migrate environment-servers my_configs/", "gym migrate environment-servers --check --json benchmarks"),
    ),
    "list benchmarks": _listing("benchmarks", "list_environments", lead=("+catalog_kind=benchmark",)),
    "list environments": _listing(
        "environments",
        "list_environments",
        Value("domain", "only of this domain", key="domain"),
        KIND,
        Value("modality", "only of this modality", key="modality", quoted=True),
        Value("licensing", "only of this licensing", key="licensing", quoted=True),
        Value("status", "only with this manifest status", key="status", choices=("experimental", "no-manifest")),
        Value("lifecycle", "active or deprecated", key="lifecycle", choices=("active", "deprecated")),
    ),
    "list agents": _listing("agents", "list_agents"),
    "list models": _listing("models", "list_models"),
    "list resources-servers": _listing("resources-servers", "list_resources_servers"),
    "search": Command(
        "search components by name, description and domain",
        Native("listing:run"),
        _search,
        (
            Positional("component_type", "kind of component (default: environments)", metavar="TYPE", choices=tuple(_SEARCHED)),
            Positional("query", "text to look for", metavar="QUERY", key="query", quoted=True, nargs=None),
            JSON,
            SEARCH_DIR,
        ),
        lead=_search_lead,
        examples=("gym search math", "gym search agents tool"),
    ),
}

COMMANDS: dict[str, Command] = {**_NATIVE, **ON_ROLLOUTS, **ON_DATASETS, **HANDED}
