"""The composition that a workload's config makes, as far as a manifest mirrors it (contract-data 3.9).

It is resolved without a model, without env.yaml and without overrides: what the files alone say. No port is allocated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gym_compose.config import NO_MODEL
from gym_compose.config.dummy import DUMMY
from gym_compose.config.errors import EnvironmentValidationError
from gym_compose.config.instances import BenchmarkDatasetConfig, DatasetConfig, Recognised
from gym_compose.config.interpolation import environment
from gym_compose.config.layers import read_sources
from gym_compose.config.load import resolve_what_can_be
from gym_compose.config.ports import OfflinePorts
from gym_compose.config.resolve import merge_sources
from gym_compose.tasks.agents import dataset_agent_pins, resolve_dataset_agent, taskset_environment_server
from gym_compose.tasks.errors import DatasetAgentError
from gym_compose.tasks.manifest import ManifestDataset
from gym_compose.wire.names import ServerType
from gym_compose.wire.references import AGENT_TYPE, RESOURCES_TYPE, referenced_name

_DATASETS: TypeAdapter[list[DatasetConfig | BenchmarkDatasetConfig]] = TypeAdapter(list[DatasetConfig | BenchmarkDatasetConfig])
_MIRRORED_FIELDS = frozenset(ManifestDataset.model_fields)
MODELS: ServerType = "responses_api_models"
OPEN = "runtime-selected"
"""The implementation of a model server that the user chooses."""


@dataclass(frozen=True)
class Component:
    """One server of a workload. ``boundary`` is its type; ``implementation`` its directory there."""

    role: str
    name: str
    implementation: str
    boundary: str
    entrypoint: str | None = None


@dataclass(frozen=True)
class Composition:
    """The mirrored fields by their names in a manifest, and the servers behind them."""

    resources_server: str | None
    agent_server: str
    model_server: str | None
    datasets: tuple[ManifestDataset, ...]
    rollout_driver: str | None
    grading_mode: str | None
    components: tuple[Component, ...]
    tasksets: Mapping[str, str]
    """Dataset to its taskset, for those that declare one; a manifest does not mirror it."""

    def component(self, role: str) -> Component | None:
        return next((component for component in self.components if component.role == role), None)


def read_composition(
    config: Path, *, owner: str | None, cwd: Path, environ: Mapping[str, str], roots: Sequence[Path]
) -> tuple[Composition, tuple[str, ...]]:
    """The composition of one config file, and the warnings of its merge. ``owner``: the instance that declares the datasets.

    Raises ConfigError, EnvironmentValidationError when the config does not describe one agent with one set of datasets.
    """
    with environment(environ):
        sources = read_sources((), roots=roots, initial={**NO_MODEL, "config_paths": [str(config)]}, environment_file=False)
        merged = merge_sources(sources, cwd=cwd, environ=environ, ports=OfflinePorts())
        resolved, _ = resolve_what_can_be(merged.tree)
    servers = [_Server.of(instance, resolved, merged.tree.data) for instance in merged.instances]
    return _Reader(resolved, {server.name: server for server in servers}, str(config)).composition(owner), merged.warnings


@dataclass(frozen=True)
class _Server:
    name: str
    server_type: ServerType
    implementation: str
    block: Mapping[str, Any]
    datasets: tuple[ManifestDataset, ...]

    @classmethod
    def of(cls, instance: Recognised, resolved: Any, raw: Any) -> _Server:
        for step in instance.path:
            resolved, raw = resolved[step], raw[step]
        datasets = _mirrored(raw.get("datasets") or (), instance.key)
        return cls(instance.name, instance.server_type, instance.implementation, resolved, datasets)

    def component(self, role: str) -> Component:
        return Component(role, self.name, self.implementation, self.server_type, str(self.block["entrypoint"]))


def _mirrored(declared: Any, instance: str) -> tuple[ManifestDataset, ...]:
    try:
        datasets = _DATASETS.validate_python(list(declared))
        plain = [dataset.model_dump(mode="json", exclude_none=True, include=set(_MIRRORED_FIELDS)) for dataset in datasets]
        return tuple(ManifestDataset.model_validate(dataset) for dataset in plain)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise EnvironmentValidationError(f"a manifest cannot mirror its datasets: {place}: {first['msg']}.", where=instance) from None


@dataclass(frozen=True)
class _Reader:
    config: Mapping[str, Any]
    servers: Mapping[str, _Server]
    where: str

    def composition(self, owner: str | None) -> Composition:
        holder = self._holder(owner)
        agent = self._agent(holder)
        bound = referenced_name(agent.block, "resources_server")
        resources = holder if holder.server_type == RESOURCES_TYPE else self.servers.get(bound or "")
        model = referenced_name(agent.block, "model_server")
        grading = resources.block.get("grading_mode") if resources is not None else None
        driver = self.config.get("rollout_collection_driver")
        components = [resources.component("resources_server")] if resources is not None else []
        components.append(agent.component("agent_server"))
        if model:
            components.append(self._model(model))
        return Composition(
            resources_server=resources.implementation if resources is not None else None,
            agent_server=agent.implementation,
            model_server=model or None,
            datasets=holder.datasets,
            rollout_driver=None if driver is None else str(driver),
            grading_mode=None if grading is None else str(grading),
            components=tuple(components),
            tasksets={
                dataset["name"]: dataset["taskset"] for dataset in holder.block.get("datasets") or () if dataset.get("taskset") is not None
            },
        )

    def _holder(self, owner: str | None) -> _Server:
        """The instance whose datasets the manifest describes: the owner that it names, or the only one there is."""
        able = [server for server in self.servers.values() if server.datasets and server.server_type in (RESOURCES_TYPE, AGENT_TYPE)]
        if owner is not None:
            found = next((server for server in able if server.name == owner), None)
            if found is None:
                raise self._wrong(f"dataset_owner {owner!r} is no resources server or agent with datasets", able)
            return found
        # Datasets of a resources server come first: an agent beside it may repeat them for older drivers.
        resources = [server for server in able if server.server_type == RESOURCES_TYPE]
        candidates = resources or able
        if len(candidates) != 1:
            raise self._wrong(f"{len(candidates)} instances declare datasets, and a manifest describes those of one", candidates)
        return candidates[0]

    def _wrong(self, message: str, able: Sequence[_Server]) -> EnvironmentValidationError:
        listed = ", ".join(f"{server.name} ({server.implementation})" for server in able) or "none"
        hint = f"With datasets: {listed}. dataset_owner names one of them."
        return EnvironmentValidationError(f"{message}.", where=self.where, hint=hint)

    def _agent(self, holder: _Server) -> _Server:
        """The agent that a run sends the holder's rows to."""
        pins = dataset_agent_pins(self.config, holder.name)
        if len(pins) > 1:
            raise EnvironmentValidationError(
                f"the datasets of {holder.name!r} pin several agents: {', '.join(sorted(pins))}.",
                where=self.where,
                hint="Rows are routed by the instance that declares them: all of its pins have to agree.",
            )
        pin = pins[0] if pins else None
        # Flat rows go by the pin of the instance that declares them, those of a taskset by its route.
        routed = {(dataset.get("agent") if (taskset := dataset.get("taskset")) else pin, taskset) for dataset in holder.block["datasets"]}
        try:
            agents = {resolve_dataset_agent(self.config, holder.name, pin=own, taskset=taskset) for own, taskset in routed}
        except DatasetAgentError as error:
            raise EnvironmentValidationError(
                f"the datasets of {holder.name!r}: {error.message}.", where=self.where, hint=error.hint
            ) from None
        if None in agents:
            several = [name for (_, name) in routed if name and resolve_dataset_agent(self.config, holder.name, taskset=name) is None]
            server = taskset_environment_server(self.config, several[0])
            raise EnvironmentValidationError(
                f"taskset {several[0]!r} of {holder.name!r} is routed to {server!r}, which fronts several agents and has no agent_server.",
                where=self.where,
                hint="A manifest describes one agent, so it cannot describe this taskset.",
            )
        if len(agents) > 1:
            listed = ", ".join(sorted(str(agent) for agent in agents))
            message = f"the tasksets of {holder.name!r} are routed to several agents: {listed}."
            raise EnvironmentValidationError(message, where=self.where, hint="A manifest describes one.")
        name = str(agents.pop())
        agent = self.servers.get(name)
        if agent is None or agent.server_type != AGENT_TYPE:
            raise EnvironmentValidationError(
                f"the datasets of {holder.name!r} are routed to {name!r}, which is no agent of the config.", where=self.where
            )
        return agent

    def _model(self, name: str) -> Component:
        server = self.servers.get(name)
        if server is None:
            return Component("model_server", name, name, MODELS)
        found = server.component("model_server")
        return found if server.implementation != DUMMY else Component(found.role, found.name, OPEN, MODELS, found.entrypoint)
