"""The part of the command table that is about rollouts on disk."""

from __future__ import annotations

from gym_compose.cli.command import (
    BENCHMARK,
    CONFIG,
    ENGINE,
    ENVIRONMENT,
    HEALTH,
    MODEL_TYPE,
    OUTPUT,
    PROJECT,
    RESOURCES_CONFIG,
    SEARCH_DIR,
    Command,
    Native,
)
from gym_compose.cli.flags import Json, Local, Positional, Switch, Value

_STORED = "--inputs results/run_materialized_inputs.jsonl --rollouts results/run.jsonl"

ON_ROLLOUTS: dict[str, Command] = {
    "eval aggregate": Command(
        "shards of a run to one file and one set of metrics, asked from running servers",
        Native("rollouts:aggregate"),
        "aggregate_rollouts",
        (
            CONFIG,
            Value("input-glob", "rollout files", aliases=("-i",), key="input_glob"),
            Value("output", "merged file to write", aliases=("-o",), key="output_jsonl_fpath"),
            *HEALTH,
            Local("overwrite", "replace the merged file", ours=True, options=(("action", "store_true"),)),
            ENGINE,
            PROJECT,
            Json("json", "print the summary as JSON", ours=True, key=None),
        ),
        parses=True,
        examples=("gym eval aggregate -i 'results/shard-*.jsonl' -o results/rollouts.jsonl",),
    ),
    "eval reverify": Command(
        "start servers, verify stored rollouts again, stop (--no-serve: by running ones)",
        Native("rollouts:reverify"),
        "reverify_rollouts",
        (
            CONFIG,
            BENCHMARK,
            ENVIRONMENT,
            RESOURCES_CONFIG,
            MODEL_TYPE,
            SEARCH_DIR,
            Value("input-format", "gym or atif", key="input_format", choices=("gym", "atif")),
            Value("inputs", "materialized inputs file", key="materialized_inputs_jsonl_fpath"),
            Value("rollouts", "rollouts file", key="rollouts_jsonl_fpath"),
            Value("atif-manifest", "joins trajectories and inputs", key="atif_manifest_jsonl_fpath"),
            OUTPUT,
            Value("concurrency", "rollouts at a time", key="num_samples_in_parallel"),
            Value("limit", "rollouts at most", key="limit"),
            Switch("force", "although the server does not support it", key="force"),
            Switch("overwrite", "replace the output file", key="overwrite"),
            Switch("resume", "go on with an unfinished output file", key="resume_from_cache"),
            Switch("disable-aggregation", "no aggregate metrics at the end", key="disable_aggregation"),
            Switch("judge-failed-only", "only those whose judge failed", key="judge_failed_only"),
            Switch("append", "add to the output file", key="append"),
            Local("no-serve", "verify by servers that run already", ours=True, options=(("action", "store_true"),)),
            Switch("strict-compatibility", "NeMo Gym's behaviour wherever ours differs", key="+compose.strict", ours=True),
            ENGINE,
            PROJECT,
            Json("json", "print the summary as JSON", ours=True, key=None),
        ),
        parses=True,
        examples=(
            f"gym eval reverify --config configs/quickstart.yaml {_STORED} -o again.jsonl",
            f"gym eval reverify --no-serve {_STORED} -o again.jsonl --concurrency 32",
        ),
    ),
    "eval profile": Command(
        "statistics of each task, agent and repeat of a run's rollouts",
        Native("rollouts:profile"),
        "reward_profile",
        (
            Value("inputs", "materialized inputs file", key="materialized_inputs_jsonl_fpath"),
            Value("rollouts", "rollouts file", key="rollouts_jsonl_fpath"),
            Json("json", "print what was counted as JSON", ours=True, key=None),
        ),
        examples=(f"gym eval profile {_STORED}",),
    ),
    "eval view": Command(
        "show a rollouts file as one HTML report that opens offline",
        Native("rollouts:view"),
        "eval_view",
        (
            Positional("rollouts", "rollouts file of a run", metavar="FILE", nargs=None),
            Local(
                "report",
                "HTML file to write (default: FILE's name with _report.html)",
                aliases=("-o", "--output"),
                metavar="PATH",
                ours=True,
            ),
            Local(
                "sample",
                "rollouts that can be looked at, at most (default: 150)",
                metavar="N",
                ours=True,
                options=(("type", int), ("default", 150)),
            ),
            Local("open", "open it in a browser", ours=True, options=(("action", "store_true"),)),
            Json("json", "print the figures as JSON, write no file", ours=True, key=None),
        ),
        examples=("gym eval view results/rollouts.jsonl", "gym eval view results/rollouts.jsonl -o report.html --open"),
    ),
}
