"""``manifest.yaml`` of an environment or benchmark: what its author says of it, and a mirror of its composition (contract-data 3.9).

Read and checked as the field does: unknown keys are refused, texts are stripped, the integration profile and the kind decide which keys
must be there. Six keys mirror the config (``MIRRORED``); the config is always right.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import yaml
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StringConstraints, ValidationError, field_validator, model_validator

from gym_compose.config.errors import ManifestError
from gym_compose.wire.names import Domain
from gym_compose.wire.suggestions import did_you_mean

Kind = Literal["environment", "benchmark"]
Profile = Literal["custom-gym-verifier", "custom-gym-agent-loop", "external-agent-loop", "external-rollout-driver"]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Reference = Annotated[str, StringConstraints(pattern=r"^\S+$")]
Repository = Annotated[str, StringConstraints(pattern=r"^((https?|ssh|git|file)://\S+|[^@\s]+@[^:\s]+:\S+)$")]
Function = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
TREES: Final[Mapping[str, Kind]] = {"environments": "environment", "benchmarks": "benchmark"}
MIRRORED: Final = ("resources_server", "agent_server", "model_server", "datasets", "rollout_driver", "grading_mode")
"""The keys whose value is that of the composition."""
NEEDED: Final[Mapping[Profile, tuple[str, ...]]] = {
    "custom-gym-verifier": ("model_server", "resources_server"),
    "custom-gym-agent-loop": ("model_server",),
    "external-agent-loop": (),
    "external-rollout-driver": ("rollout_driver",),
}
"""What each integration profile cannot be without."""
_PRIVATE: Final = ("internal", "proprietary", "unknown")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True, frozen=True)


class Reward(_Strict):
    """``range``: the least and the greatest reward, both possible."""

    range: tuple[FiniteFloat, FiniteFloat]
    higher_is_better: bool

    @model_validator(mode="after")
    def _ordered(self) -> Reward:
        low, high = self.range
        if low > high:
            raise ValueError(f"range: {low} is not below {high}")
        return self


class ManifestDataset(_Strict):
    """One dataset as the manifest mirrors it. A benchmark's has the script that makes it."""

    name: Text
    type: Literal["train", "validation", "example", "benchmark"]
    jsonl_fpath: Text
    prepare_script: Text | None = None
    prompt_config: Text | None = None
    num_repeats: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="after")
    def _made(self) -> ManifestDataset:
        if self.type == "benchmark" and self.prepare_script is None:
            raise ValueError("a benchmark dataset needs a prepare_script")
        return self


class Adoption(_Strict):
    """Where a workload was taken from, and when the two were last compared."""

    source: Repository
    ref: Reference
    reconciled: date


class Manifest(_Strict):
    """The whole document. ``model_validate`` raises pydantic's error; ``load_manifest`` one for people."""

    name: Text
    version: Text
    experimental: bool = True
    kind: Kind
    integration_profile: Profile
    domain: Domain
    description: Text
    modality: Text
    licensing: Text = "unknown"
    authors: Annotated[list[Text], Field(min_length=1)]
    reward: Reward
    determinism: Literal["seeded", "stochastic", "unknown"] = "unknown"
    config_path: Text = "config.yaml"
    dataset_owner: Text | None = None
    resources_server: Text | None
    agent_server: Text
    datasets: Annotated[list[ManifestDataset], Field(min_length=1)]
    model_server: Text | None = None
    rollout_driver: Function | None = None
    grading_mode: Text | None = None
    session_model: Literal["episode", "step"] | None = None
    state: Literal["none", "per_session"] | None = None
    sandbox: Text | None = None
    canonical_split: Text | None = None
    prompt_source: Literal["template", "prepared", "agent"] = "template"
    standard_prompt_config: Text | None = None
    adopted_from: Adoption | None = None
    lifecycle: Literal["active", "deprecated"] = "active"

    @field_validator("authors")
    @classmethod
    def _each_once(cls, authors: list[str]) -> list[str]:
        if len(set(authors)) < len(authors):
            raise ValueError("an author is named twice")
        return authors

    @field_validator("licensing")
    @classmethod
    def _license(cls, licensing: str) -> str:
        if licensing in _PRIVATE:
            return licensing
        try:
            return str(canonicalize_license_expression(licensing))
        except InvalidLicenseExpression:
            raise ValueError(f"{licensing!r} is neither an SPDX license expression nor one of {', '.join(_PRIVATE)}") from None

    @model_validator(mode="after")
    def _complete(self) -> Manifest:
        missing = [key for key in self._needed() if getattr(self, key) is None]
        if missing:
            raise ValueError(f"a {self.kind} of profile {self.integration_profile} needs {', '.join(dict.fromkeys(missing))}")
        if self.rollout_driver is not None and self.integration_profile != "external-rollout-driver":
            raise ValueError("rollout_driver belongs to the profile external-rollout-driver only")
        if self.prompt_source == "prepared" and self.standard_prompt_config is not None:
            raise ValueError("standard_prompt_config has no use where prompts are prepared")
        if self.prompt_source != "template" and any(dataset.prompt_config is not None for dataset in self.datasets):
            raise ValueError("a dataset's prompt_config belongs to prompt_source template only")
        names = [dataset.name for dataset in self.datasets]
        if len(set(names)) < len(names):
            raise ValueError("two datasets have one name")
        if self.kind == "benchmark" and all(dataset.type != "benchmark" for dataset in self.datasets):
            raise ValueError("a benchmark needs a dataset of type benchmark")
        return self

    def _needed(self) -> list[str]:
        needed = list(NEEDED[self.integration_profile])
        if self.kind == "benchmark":
            needed.append("canonical_split")
            if self.prompt_source == "template":
                needed.append("standard_prompt_config")
        return needed


@dataclass(frozen=True)
class ManifestFile:
    """A manifest and the document that it was read from. ``path`` is absolute, symbolic links resolved."""

    path: Path
    document: Mapping[str, Any]
    manifest: Manifest

    @property
    def tree(self) -> Path | None:
        """The ``environments`` or ``benchmarks`` directory that it stands in; None for one that stands alone."""
        return catalog_tree(self.path)

    @property
    def config(self) -> Path:
        """The config, symbolic links resolved. Raises ManifestError when ``config_path`` leads out of the catalog tree."""
        given = Path(self.manifest.config_path)
        if given.is_absolute():
            raise ManifestError(f"config_path is relative to the manifest, and {given} is absolute.", where=str(self.path))
        home = self.tree or self.path.parent
        found = (self.path.parent / given).resolve()
        if not found.is_relative_to(home):
            raise ManifestError(f"config_path {given} leads out of {home}.", where=str(self.path))
        return found

    def mirroring(self, changes: Mapping[str, Any]) -> ManifestFile:
        """The same with mirrored keys changed: None takes a key away, where it may be absent. Raises ManifestError."""
        document = dict(self.document)
        for key, value in changes.items():
            if value is None and key != "resources_server":
                document.pop(key, None)
            else:
                document[key] = _plain(value)
        return ManifestFile(self.path, document, _checked(document, self.path, "the config cannot be mirrored"))

    def write(self) -> None:
        """Replace the file at once, its mode kept. Keys stay in the author's order; comments are lost. Raises ManifestError."""
        text = yaml.safe_dump(dict(self.document), sort_keys=False, allow_unicode=True)
        try:
            handle, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
            temporary = Path(name)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as stream:
                    stream.write(text)
                    stream.flush()
                    os.fsync(stream.fileno())
                temporary.chmod(self.path.stat().st_mode & 0o777)
                temporary.replace(self.path)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise ManifestError(f"it cannot be written: {error.strerror}.", where=str(self.path)) from None


def load_manifest(path: Path) -> ManifestFile:
    """Read and check one manifest. Raises ManifestError naming the file, the line or the keys, and all that is wrong with them."""
    found = path.expanduser().resolve()
    try:
        document = yaml.load(found.read_bytes(), Loader=yaml.CSafeLoader)
    except FileNotFoundError:
        raise ManifestError("there is no such manifest.", where=str(found)) from None
    except OSError as error:
        raise ManifestError(f"it cannot be read: {error.strerror}.", where=str(found)) from None
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ManifestError(f"it is not YAML: {error.problem}.", where=f"{found}{line}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ManifestError(f"it is not YAML: {error}.", where=str(found)) from None
    if not isinstance(document, dict):
        raise ManifestError("a manifest is a mapping.", where=str(found))
    return ManifestFile(found, document, _checked(document, found, "it is no valid manifest"))


def catalog_tree(path: Path) -> Path | None:
    """The nearest directory above ``path`` that is called ``environments`` or ``benchmarks``."""
    return next((parent for parent in path.parents if parent.name in TREES), None)


def _checked(document: Mapping[str, Any], path: Path, what: str) -> Manifest:
    try:
        return Manifest.model_validate(document)
    except ValidationError as error:
        found = error.errors(include_url=False)
        problems = [f"{'.'.join(map(str, problem['loc'])) or 'manifest'}: {_said(problem['msg'])}" for problem in found]
        strange = next((str(problem["loc"][-1]) for problem in found if problem["type"] == "extra_forbidden"), None)
        hint = did_you_mean(strange, Manifest.model_fields) if strange is not None else None
        raise ManifestError(f"{what}: {'; '.join(problems)}.", where=str(path), hint=hint) from None


def _said(message: str) -> str:
    return message.removeprefix("Value error, ")


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
