"""The keys of a config that make a run (contract-data 1.2) as the driver's options."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gym_compose.wire.errors import UsageError
from gym_compose.wire.names import EXTENSION_KEY
from gym_compose.wire.suggestions import close_or_all

if TYPE_CHECKING:
    from gym_compose.project.runs import RunOptions

_FLAGS = {"input_jsonl_fpath": "--input", "output_jsonl_fpath": "--output", "split": "--split"}
_NOT_OF_THE_CONFIG = frozenset(("format", "run_id", "head_url", "prompt", "skills_ref", "overwrite", "strict_compatibility"))
"""Fields of a request that are made from something else than the key of their name."""
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_EXPORTERS = {
    "wandb": ("wandb_project", "wandb_name", "wandb_api_key"),
    "mlflow": ("mlflow_tracking_uri", "mlflow_experiment_name", "mlflow_run_name"),
}
HEALTH_CHECKS = (
    "check_execution_error",
    "record_unreadable",
    "rollout_duplicate_identity",
    "rollout_missing_agent_turns",
    "rollout_ended_on_failed_model_call",
    "agent_turn_hollow",
    "model_call_zero_completion_tokens",
    "model_call_missing_token_counts",
    "trajectory_capture_mismatch",
    "model_call_failed",
    "rollout_token_count_mismatch",
    "model_call_runaway_generation",
    "task_consistently_unhealthy",
    "task_no_successful_model_calls",
)
"""Names that ``health_check_ignored_checks`` may hold (contract-data 1.18)."""


def require(config: Mapping[str, Any], *keys: str) -> None:
    """Raise UsageError that lists which of ``keys`` the config does not set, with the flag or override that does."""
    missing = [key for key in keys if config.get(key) in (None, "")]
    if missing:
        given = ", ".join(f"{key} ({_FLAGS[key]})" if key in _FLAGS else key for key in missing)
        raise UsageError(f"missing required configuration: {given}.", hint=f"Give it by its flag or as +{missing[0]}=VALUE.")


def run_options(
    config: Mapping[str, Any], *, cwd: Path, roots: Sequence[Path], input_file: Path | None = None, overwrite: bool = False
) -> RunOptions:
    """Options out of a resolved config. ``input_file`` stands for ``input_jsonl_fpath`` (rows collated from datasets).

    Relative paths: input, prompt and skills are searched in ``roots``, the output is below ``cwd``. Raises UsageError for values that
    are not of their type, InvalidInputError for keys that this driver cannot honour and files that are not there.
    """
    from pydantic import ValidationError

    from gym_compose.project.runs import RunOptions
    from gym_compose.tasks.prompt import load_prompt
    from gym_compose.tasks.skills import skills_reference

    taken = RunOptions.model_fields.keys() - _NOT_OF_THE_CONFIG
    values: dict[str, Any] = {key: config[key] for key in taken if config.get(key) is not None}
    values["input_jsonl_fpath"] = str(input_file or _find(str(values["input_jsonl_fpath"]), roots, cwd))
    values["output_jsonl_fpath"] = str(cwd / Path(str(values["output_jsonl_fpath"])).expanduser())
    values["overwrite"] = overwrite or bool(config.get("overwrite"))
    values["strict_compatibility"] = is_strict(config)
    values["max_failures"] = _share(config.get("max_failures"))
    if config.get("limit") == 0:
        values.pop("limit")  # falsy: no limit (contract-data 1.2)
    if config.get("prompt_config"):
        prompt = load_prompt(_find(str(config["prompt_config"]), roots, cwd))
        values["prompt"] = {"user": prompt.user, "system": prompt.system, "path": prompt.path}
    skills = config.get("skills")
    if isinstance(skills, Mapping) and skills.get("path"):
        values["skills_ref"] = skills_reference(_find(str(skills["path"]), roots, cwd), str(skills["path"]))
    try:
        options = RunOptions.model_validate(values)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg'].lower()}" for item in error.errors())
        raise UsageError(f"invalid configuration: {wrong}.") from None
    _check_together(options)
    return options


def is_strict(config: Mapping[str, Any]) -> bool:
    """``compose: {strict: true}``: NeMo Gym's behaviour wherever it differs from ours."""
    extension = config.get(EXTENSION_KEY)
    return isinstance(extension, Mapping) and bool(extension.get("strict"))


def notices(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What keys of the contract ask for and a run here does not do. Raises UsageError for a health check that does not exist."""
    found = []
    uploads = config.get("upload_rollouts", config.get("upload_rollouts_to_wandb", True))
    exporters = [name for name, keys in _EXPORTERS.items() if all(config.get(key) not in (None, "", "****") for key in keys)]
    if uploads and exporters:
        found.append(f"rollouts and metrics are not uploaded to {' and '.join(exporters)}: the files are all there is (upload_rollouts)")
    capture = config.get("token_id_capture")
    if isinstance(capture, Mapping) and capture.get("enabled"):
        found.append("token ids are not captured: records hold no token ids (token_id_capture)")
    ignored = config.get("health_check_ignored_checks") or ()
    names = [name.strip() for name in ignored.split(",")] if isinstance(ignored, str) else [str(name).strip() for name in ignored]
    for name in names:
        if name and name not in HEALTH_CHECKS:
            raise UsageError(
                f"invalid configuration: health_check_ignored_checks: there is no check {name!r}.", hint=close_or_all(name, HEALTH_CHECKS)
            )
    if (any(names) or config.get("health_check_workers") is not None) and not config.get("disable_health_check"):
        found.append("no health check is made of the rollouts: `gym eval health-check` of NeMo Gym makes it afterwards (health_check_*)")
    return tuple(found)


def _share(value: Any) -> Any:
    """``max_failures`` with ``5%`` as 0.05, and ``100%`` as no bound: 1.0 would be a count. All else as it is. Raises UsageError."""
    if not isinstance(value, str):
        return value
    percent = _PERCENT.fullmatch(value.strip())
    if percent is None and _NUMBER.fullmatch(value.strip()):
        return value
    if percent is None or float(percent.group(1)) > 100:
        raise UsageError(
            f"invalid configuration: max_failures: {value!r} is neither a count nor a share.", hint="For instance 20, 0.05 or 5%."
        )
    share = float(percent.group(1)) / 100
    return None if share == 1 else share


def _check_together(options: RunOptions) -> None:
    """Fields that need each other (contract-data 1.2). Raises UsageError."""
    if options.resume_from_cache and options.overwrite:
        raise UsageError("--resume and --overwrite exclude each other.", hint="One goes on with what is there, the other replaces it.")
    if options.environment_routing_mode == "legacy" and not options.environment_server_name:
        raise UsageError("invalid configuration: environment_routing_mode=legacy needs environment_server_name.")
    if options.dispatch_budget_s is not None and options.num_samples_in_parallel is None:
        raise UsageError(
            "invalid configuration: dispatch_budget_s needs num_samples_in_parallel.",
            hint="Without a bound all rows start at once, so there is nothing to hold back. Give --concurrency N.",
        )
    if isinstance(options.max_failures, float) and options.max_failures >= 1 and not options.max_failures.is_integer():
        raise UsageError(
            f"invalid configuration: max_failures: {options.max_failures} is neither a count nor a share below 1.",
            hint="For instance 20, 0.05 or 5%.",
        )


def _find(path: str, roots: Sequence[Path], cwd: Path) -> Path:
    given = Path(path).expanduser()
    candidates = [given] if given.is_absolute() else [root / given for root in roots]
    return next((candidate for candidate in candidates if candidate.exists()), cwd / given)
