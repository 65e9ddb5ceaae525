"""``gym env validate --manifest``: is a workload's manifest true, and can its data be run? (contract-data 3.9). Nothing is started."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from gym_compose.config import syntax
from gym_compose.config.errors import EnvironmentValidationError, ManifestError
from gym_compose.config.roots import search_roots
from gym_compose.tasks.agent_loop import Inferred, infer_profile
from gym_compose.tasks.composition import Component, Composition, read_composition
from gym_compose.tasks.datasets import locate
from gym_compose.tasks.errors import DatasetError, RowError
from gym_compose.tasks.manifest import MIRRORED, TREES, Manifest, ManifestDataset, ManifestFile, load_manifest
from gym_compose.tasks.prompt import Prompt, has_input, load_prompt
from gym_compose.tasks.rows import PARAMS, ROLLOUT_ID, read_rows
from gym_compose.wire.responses import ResponsesCreateParams


@dataclass(frozen=True)
class DatasetReport:
    name: str
    type: str
    path: str
    rows: int
    prompt_config: str | None = None


@dataclass(frozen=True)
class ManifestReport:
    """What was found; ``as_json`` has the field's own keys."""

    name: str
    version: str
    kind: str
    declared_profile: str
    inferred_profile: str
    profile_evidence: str
    manifest_path: str
    config_path: str
    components: tuple[Component, ...]
    datasets: tuple[DatasetReport, ...]
    rollout_driver: str | None = None
    grading_mode: str | None = None
    synchronized_fields: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def validate_manifest(
    manifest: Path,
    *,
    config: Path | None = None,
    sync: bool = False,
    cwd: Path,
    environ: Mapping[str, str],
    last: Sequence[Path] = (),
) -> ManifestReport:
    """Check a manifest, its place in the catalog, its mirror of the config, the code and the rows that it names.

    ``config``: the catalog's own, else the manifest's ``config_path``. ``sync``: a mirror that is out of date is rewritten, after
    everything else was found right. Relative paths are looked for beside the manifest's catalog tree, then in the search roots
    (``last`` are the install roots). Raises ManifestError, EnvironmentValidationError, ConfigError.
    """
    found = load_manifest(manifest)
    path = found.config if config is None else config.expanduser().resolve()
    check_place(found)
    if not path.is_file():
        raise EnvironmentValidationError(f"its config {path} does not exist.", where=str(found.path))
    home = next((parent.parent for parent in path.parents if parent.name in TREES), None)
    roots = search_roots(cwd, environ, extra=[home] if home is not None else [], last=last)
    composition, warnings = read_composition(path, owner=found.manifest.dataset_owner, cwd=cwd, environ=environ, roots=roots)
    changes = stale_fields(found.manifest, composition)
    if changes and not sync:
        raise EnvironmentValidationError(
            f"its mirror of the config is out of date: {', '.join(changes)}.",
            where=str(found.path),
            hint="The config is right; --sync writes these keys anew.",
            details=tuple(f"{key}: manifest {_shown(getattr(found.manifest, key))}, config {_shown(changes[key])}" for key in changes),
        )
    if changes:
        try:
            found = found.mirroring(changes)
        except ManifestError as error:
            raise EnvironmentValidationError(error.message, where=error.where) from None
    inferred = _inferred(composition, roots)
    checked = _Check(found.manifest, str(found.path), roots, composition.tasksets)
    checked.prompts()
    checked.driver()
    datasets = tuple(checked.dataset(dataset) for dataset in found.manifest.datasets)
    if changes:
        found.write()
    return ManifestReport(
        name=found.manifest.name,
        version=found.manifest.version,
        kind=found.manifest.kind,
        declared_profile=found.manifest.integration_profile,
        inferred_profile=inferred.profile,
        profile_evidence=inferred.evidence,
        manifest_path=str(found.path),
        config_path=str(path),
        components=composition.components,
        datasets=datasets,
        rollout_driver=composition.rollout_driver,
        grading_mode=composition.grading_mode,
        synchronized_fields=tuple(changes),
        warnings=(*warnings, *_profile_warnings(found.manifest, inferred)),
    )


def check_place(found: ManifestFile) -> None:
    """Raise EnvironmentValidationError when name or kind are not those of the manifest's place in its tree."""
    tree, manifest = found.tree, found.manifest
    place = found.path.parent.relative_to(tree).as_posix() if tree is not None else found.path.parent.name
    if manifest.name != place:
        raise EnvironmentValidationError(f"its name is {manifest.name!r}, and its place is that of {place!r}.", where=str(found.path))
    kind = TREES[tree.name] if tree is not None else manifest.kind
    if manifest.kind != kind:
        raise EnvironmentValidationError(f"its kind is {manifest.kind!r}, and its place is for kind {kind!r}.", where=str(found.path))


def stale_fields(manifest: Manifest, composition: Composition) -> dict[str, Any]:
    """The mirrored keys that the config gives another value, with that value."""
    values = {key: getattr(composition, key) for key in MIRRORED} | {"datasets": list(composition.datasets)}
    return {key: value for key, value in values.items() if getattr(manifest, key) != value}


@dataclass(frozen=True)
class _Check:
    """What a manifest names outside itself: prompts, a driver, scripts, rows."""

    manifest: Manifest
    where: str
    roots: Sequence[Path]
    tasksets: Mapping[str, str]

    def prompts(self) -> None:
        """Of a benchmark: a template is one for all of its datasets; an agent's template is there and is one."""
        manifest, standard = self.manifest, self.manifest.standard_prompt_config
        if manifest.kind != "benchmark":
            return
        if manifest.prompt_source == "template":
            other = [d.name for d in manifest.datasets if d.type == "benchmark" and d.prompt_config not in (None, standard)]
            if other:
                raise self._error(f"the prompt_config of {', '.join(other)} is not the standard_prompt_config {standard!r}.")
        elif manifest.prompt_source == "agent" and standard is not None:
            self._prompt(standard)

    def driver(self) -> None:
        """``module:function`` names a function of a module in a search root."""
        if self.manifest.rollout_driver is None:
            return
        module, _, function = self.manifest.rollout_driver.partition(":")
        relative = PurePosixPath(*module.split("."))
        names = (f"{relative}.py", f"{relative}/__init__.py")
        path = next((found for name in names if (found := locate(name, self.roots)) is not None), None)
        if path is None:
            raise self._error(f"the module of rollout_driver {self.manifest.rollout_driver} is not found.")
        if not any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function for node in self._code(path).body):
            raise self._error(f"rollout_driver {self.manifest.rollout_driver}: {path} has no function {function!r}.")

    def dataset(self, dataset: ManifestDataset) -> DatasetReport:
        """Every row is a flat run request once its prompt is filled in."""
        prompt = self._made(dataset) if dataset.type == "benchmark" else None
        path = locate(dataset.jsonl_fpath, self.roots)
        if path is None:
            made = f" {dataset.prepare_script} makes it." if dataset.prepare_script else ""
            raise self._error(f"dataset {dataset.name!r} is not on disk: {dataset.jsonl_fpath}.", hint=f"Looked in {self._searched}.{made}")
        rows = 0
        try:
            for source in read_rows(path):
                rows += 1
                self._row(dataset, source.row, f"{path}, line {source.line}", prompt)
        except RowError as error:
            raise EnvironmentValidationError(error.message, where=error.where, hint=error.hint) from None
        if rows == 0:
            raise self._error(f"dataset {dataset.name!r} has no rows: {path}.")
        return DatasetReport(dataset.name, dataset.type, str(path), rows, prompt.path if prompt is not None else None)

    def _made(self, dataset: ManifestDataset) -> Prompt | None:
        script = locate(dataset.prepare_script or "", self.roots)
        if script is None:
            raise self._error(f"the prepare_script of dataset {dataset.name!r} does not exist: {dataset.prepare_script}.")
        if not any(isinstance(node, ast.FunctionDef) and node.name == "prepare" for node in self._code(script).body):
            raise self._error(f"{script} has no function prepare(), which makes dataset {dataset.name!r}.")
        if self.manifest.prompt_source != "template":
            return None
        template = dataset.prompt_config or self.manifest.standard_prompt_config
        if template is None:
            raise self._error(f"dataset {dataset.name!r} has no prompt_config, and there is no standard_prompt_config.")
        return self._prompt(template)

    def _row(self, dataset: ManifestDataset, row: dict[str, Any], where: str, prompt: Prompt | None) -> None:
        if not isinstance(row.get(PARAMS, {}), dict):
            raise EnvironmentValidationError(f"the row's {PARAMS} is no object.", where=where)
        if prompt is not None:
            if has_input(row):
                raise EnvironmentValidationError(f"the row has a {PARAMS}.input, and its dataset a prompt template.", where=where)
            try:
                row = prompt.apply(row)
            except DatasetError as error:
                raise EnvironmentValidationError(f"{error.message}.", where=where, hint=error.hint) from None
        elif self.manifest.prompt_source == "prepared" and dataset.type == "benchmark" and not has_input(row):
            raise EnvironmentValidationError(f"prompts are declared prepared, and the row has no {PARAMS}.input.", where=where)
        try:
            _Row.model_validate(row)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(step) for step in first["loc"])
            taskset = self.tasksets.get(dataset.name)
            hint = None
            if taskset is not None:
                hint = f"A manifest describes rows that are run requests; it cannot describe tasks of another shape (taskset {taskset!r})."
            raise EnvironmentValidationError(f"the row is no run request: {place}: {first['msg']}.", where=where, hint=hint) from None

    def _prompt(self, template: str) -> Prompt:
        path = locate(template, self.roots)
        if path is None:
            raise self._error(f"the prompt {template} is not on disk.", hint=f"Looked in {self._searched}.")
        try:
            return load_prompt(path)
        except DatasetError as error:
            raise EnvironmentValidationError(f"{error.message}.", where=error.where, hint=error.hint) from None

    def _code(self, path: Path) -> ast.Module:
        try:
            return syntax.parse(path.read_bytes(), str(path))
        except (OSError, ValueError, SyntaxError) as error:
            raise self._error(f"{path} cannot be read as Python: {error}.") from None

    @property
    def _searched(self) -> str:
        return ", ".join(str(root) for root in self.roots)

    def _error(self, message: str, *, hint: str | None = None) -> EnvironmentValidationError:
        return EnvironmentValidationError(message, where=self.where, hint=hint)


class _Row(BaseModel):
    """A flat row: its other keys are the verifier's business."""

    responses_create_params: ResponsesCreateParams
    rollout_id: Annotated[str | None, Field(alias=ROLLOUT_ID)] = None


def _inferred(composition: Composition, roots: Sequence[Path]) -> Inferred:
    agent = composition.component("agent_server")
    entrypoint = None
    if agent is not None and agent.entrypoint:
        entrypoint = locate(f"{agent.boundary}/{agent.implementation}/{agent.entrypoint}", roots)
    return infer_profile(composition.agent_server, entrypoint, driver=composition.rollout_driver)


def _profile_warnings(manifest: Manifest, inferred: Inferred) -> tuple[str, ...]:
    declared = manifest.integration_profile
    if inferred.profile == declared:
        return ()
    if inferred.profile == "unknown":
        return (f"integration_profile {declared!r} cannot be checked: {inferred.evidence}.",)
    return (f"integration_profile is {declared!r}, and the code speaks for {inferred.profile!r}: {inferred.evidence}.",)


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_shown(item) for item in value)}]"
    if isinstance(value, BaseModel):
        return repr(value.model_dump(mode="json", exclude_none=True))
    return repr(value)
