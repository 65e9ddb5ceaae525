"""The keys of a config that make a run (contract-data 1.2) as the driver's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gym_compose.wire.errors import InvalidInputError, UsageError

if TYPE_CHECKING:
    from gym_compose.project.runs import RunOptions

_FLAGS = {"input_jsonl_fpath": "--input", "output_jsonl_fpath": "--output", "split": "--split"}
_NOT_DONE = {
    "resume_from_cache": "a run is not resumed yet",
    "dispatch_budget_s": "a run has no dispatch budget",
    "retry_terminal_timeouts": "a run is not resumed yet",
    "retry_invalid_judge_responses": "a run is not resumed yet",
    "dispatch_longest_first": "a run is not resumed yet",
    "count_failure_classes_as_zero": "failures are not folded into metrics",
    "count_missing_rollouts_as_zero": "failures are not folded into metrics",
    "rollout_collection_driver": "a run uses the built-in driver",
}
"""Keys that would change a run and that this driver does not take: refused, not ignored."""


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

    for key, reason in _NOT_DONE.items():
        if config.get(key):
            raise InvalidInputError(f"{reason}: the key is refused, not ignored.", where=key, hint="Leave it out.")
    taken = RunOptions.model_fields.keys() - {"format", "run_id", "head_url", "prompt", "skills_ref", "overwrite"}
    values: dict[str, Any] = {key: config[key] for key in taken if config.get(key) is not None}
    values["input_jsonl_fpath"] = str(input_file or _find(str(values["input_jsonl_fpath"]), roots, cwd))
    values["output_jsonl_fpath"] = str(cwd / Path(str(values["output_jsonl_fpath"])).expanduser())
    values["overwrite"] = overwrite or bool(config.get("overwrite"))
    if config.get("limit") == 0:
        values.pop("limit")  # falsy: no limit (contract-data 1.2)
    if config.get("prompt_config"):
        prompt = load_prompt(_find(str(config["prompt_config"]), roots, cwd))
        values["prompt"] = {"user": prompt.user, "system": prompt.system, "path": prompt.path}
    skills = config.get("skills")
    if isinstance(skills, Mapping) and skills.get("path"):
        values["skills_ref"] = skills_reference(_find(str(skills["path"]), roots, cwd), str(skills["path"]))
    try:
        return RunOptions.model_validate(values)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg'].lower()}" for item in error.errors())
        raise UsageError(f"invalid configuration: {wrong}.") from None


def _find(path: str, roots: Sequence[Path], cwd: Path) -> Path:
    given = Path(path).expanduser()
    candidates = [given] if given.is_absolute() else [root / given for root in roots]
    return next((candidate for candidate in candidates if candidate.exists()), cwd / given)
