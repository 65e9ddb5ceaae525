"""The part of the command table that is about datasets."""

from __future__ import annotations

from gym_compose.cli.command import BENCHMARK, CONFIG, INPUT, MODEL_TYPE, RESOURCES_CONFIG, SEARCH_DIR, Command, Native
from gym_compose.cli.flags import Json, Switch, Value

_REPORT = Json("json", "print what was made as JSON", ours=True, key=None)

ON_DATASETS: dict[str, Command] = {
    "eval prepare": Command(
        "make the files of datasets that have a prepare script",
        Native("prepare:run"),
        "prepare_benchmark",
        (CONFIG, BENCHMARK, SEARCH_DIR, _REPORT),
        parses=True,
        examples=(
            "gym eval prepare --benchmark aime24",
            "gym eval prepare --config my_benchmark.yaml +use_cached_prepared_benchmarks=true",
            "gym eval prepare --config my_benchmark.yaml '+prepare_script_args={subset: small}'",
        ),
    ),
    "dataset render": Command(
        "fill a prompt template from the rows of a file",
        Native("dataset:render"),
        "materialize_prompts_cli",
        (
            INPUT,
            Value("prompt-config", "prompt template", key="prompt_config"),
            Value("output", "file to write", aliases=("-o",), key="output_jsonl_fpath"),
            SEARCH_DIR,
            _REPORT,
        ),
        examples=("gym dataset render -i data/raw.jsonl --prompt-config prompts/cot.yaml -o data/rendered.jsonl",),
    ),
    "dataset collate": Command(
        "check the datasets of a config and join them: one file for each type",
        Native("dataset:collate"),
        "prepare_data",
        (
            CONFIG,
            RESOURCES_CONFIG,
            MODEL_TYPE,
            SEARCH_DIR,
            Value("mode", "what for", key="mode", choices=("train_preparation", "example_validation")),
            Value("output-dir", "directory to write", key="output_dirpath"),
            Switch("download", "fetch what is missing", key="should_download"),
            _REPORT,
        ),
        parses=True,
        examples=(
            "gym dataset collate --config my_config.yaml --mode train_preparation --output-dir data/collated",
            "gym dataset collate --config my_config.yaml --mode example_validation --output-dir data/examples +task_data_validation=warn",
        ),
    ),
}
