"""Which top-level blocks are server instances, and which only look like one (contract-config 1.1, 1.2).

Validation sees interpolations as text, as the peer's does: ``port: ${p}`` is no integer and makes the block an almost-server.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic_core import ErrorDetails

from gym_compose.config.errors import AlmostServerError
from gym_compose.config.interpolation import MISSING, Place, Tree
from gym_compose.config.model import KeyPath
from gym_compose.config.reserved import RESERVED_KEYS
from gym_compose.wire.names import SERVER_TYPES, Domain, ServerType

License = Literal[
    "Apache 2.0",
    "MIT",
    "Creative Commons Attribution 4.0 International",
    "Creative Commons Attribution-ShareAlike 4.0 International",
    "CC BY-SA 4.0",
    "CC BY-NC 3.0",
    "NVIDIA Internal Use Only, Do Not Distribute",
    "NVIDIA Evaluation Dataset License Agreement",
    "TBD",
    "GNU General Public License v3.0",
]
Repeats = Annotated[int, Field(ge=1)]
Taskset = Annotated[str, Field(min_length=1)]


class GitlabIdentifier(BaseModel):
    dataset_name: str
    version: str
    artifact_fpath: str


class HuggingFaceIdentifier(BaseModel):
    repo_id: str
    artifact_fpath: str | None = None


class GitlabSource(GitlabIdentifier):
    type: Literal["gitlab"]


class HuggingFaceSource(HuggingFaceIdentifier):
    type: Literal["huggingface"]


class DatasetConfig(BaseModel):
    """A dataset of type train, validation or example. The first two need a license."""

    name: str
    type: Literal["train", "validation", "example"]
    jsonl_fpath: str
    prepare_script: Path | None = None
    prepare_dependencies: list[str] = []
    taskset: Taskset | None = None
    num_repeats: Repeats = 1
    source: Annotated[GitlabSource | HuggingFaceSource, Field(discriminator="type")] | None = None
    gitlab_identifier: GitlabIdentifier | None = None
    huggingface_identifier: HuggingFaceIdentifier | None = None
    license: License | None = None

    @model_validator(mode="after")
    def _complete(self) -> DatasetConfig:
        if self.type != "example" and self.license is None:
            raise ValueError(f"a {self.type} dataset needs a license ('{self.name}' has none)")
        if self.source is not None and (self.gitlab_identifier is not None or self.huggingface_identifier is not None):
            raise ValueError(f"the dataset '{self.name}' has both source and an old *_identifier; keep source")
        return self


class BenchmarkDatasetConfig(BaseModel):
    """A benchmark's dataset: made by its ``prepare_script``."""

    name: str
    type: Literal["benchmark"]
    jsonl_fpath: Path
    prepare_script: Path
    taskset: Taskset | None = None
    prompt_config: Path | None = None
    num_repeats: Repeats = 1
    prepare_dependencies: list[str] = []
    agent: str | None = None


class Implementation(BaseModel):
    """The block below ``<server type>: <implementation>:``; whatever else it holds is the server's own."""

    model_config = ConfigDict(extra="allow")

    entrypoint: str
    host: str | None = None
    port: int | None = None
    num_workers: int | None = None
    domain: Domain | None = None
    datasets: list[DatasetConfig | BenchmarkDatasetConfig] | None = None


Single = Annotated[dict[str, Implementation], Field(min_length=1, max_length=1)]


class _Instance(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str


class ModelInstance(_Instance):
    responses_api_models: Single


class ResourcesInstance(_Instance):
    resources_servers: Single

    @model_validator(mode="after")
    def _has_domain(self) -> ResourcesInstance:
        if next(iter(self.resources_servers.values())).domain is None:
            raise ValueError("a resources server needs a domain")
        return self


class AgentServerInstance(_Instance):
    responses_api_agents: Single


class EnvironmentInstance(_Instance):
    environment_servers: Single


AnyInstance = ModelInstance | ResourcesInstance | AgentServerInstance | EnvironmentInstance
# One union over all four, as in the peer: with two type keys in one block pydantic's choice decides, not ours.
_ADAPTER: TypeAdapter[AnyInstance] = TypeAdapter(AnyInstance)
_TYPE_OF: dict[type[BaseModel], ServerType] = {
    ModelInstance: "responses_api_models",
    ResourcesInstance: "resources_servers",
    AgentServerInstance: "responses_api_agents",
    EnvironmentInstance: "environment_servers",
}


@dataclass(frozen=True)
class Recognised:
    """A block that validated. ``key`` is its top-level key, ``name`` what references call it: the same unless the block has a ``name``."""

    key: str
    name: str
    server_type: ServerType
    implementation: str
    path: KeyPath
    """Of the implementation's block in the tree."""


@dataclass(frozen=True)
class AlmostServer:
    """A block that did not validate and looks like a server. ``problems``: dotted place and what is wrong with it."""

    key: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.key}: {'; '.join(self.problems)}"


def recognise(tree: Tree) -> tuple[tuple[Recognised, ...], tuple[AlmostServer, ...]]:
    """Server instances and almost-servers, in the order of the config. Follows top-level interpolations."""
    recognised: list[Recognised] = []
    almost: list[AlmostServer] = []
    for key, place in list(tree.fields(())):
        if key in RESERVED_KEYS or not isinstance(place.value, dict) or place.path is None:
            continue
        if not any(kind in place.value for kind in SERVER_TYPES):
            continue
        try:
            instance = _ADAPTER.validate_python({"name": key, **place.value})
        except ValidationError as error:
            if _looks_like_server(tree, place):
                almost.append(AlmostServer(str(key), _problems(error.errors(include_url=False, include_input=False), place.value)))
            continue
        kind = _TYPE_OF[type(instance)]
        [implementation] = getattr(instance, kind)
        recognised.append(Recognised(str(key), instance.name, kind, implementation, (*place.path, kind, implementation)))
    return tuple(recognised), tuple(almost)


def refuse_almost_servers(almost: Sequence[AlmostServer]) -> None:
    """Raise AlmostServerError naming each block and what is wrong with it; nothing for none."""
    if not almost:
        return
    raise AlmostServerError(
        f"{len(almost)} block(s) look like servers and are not valid: {'; '.join(str(block) for block in almost)}.",
        hint="Correct them, or set error_on_almost_servers=false to go on without them.",
        details=tuple(f"{block.key}: {problem}" for block in almost for problem in block.problems),
    )


def _looks_like_server(tree: Tree, place: Place) -> bool:
    """Whether some implementation below a type key has an ``entrypoint``."""
    assert place.path is not None
    for kind in SERVER_TYPES:
        if place.value.get(kind, MISSING) == MISSING:
            continue
        for _, implementation in tree.fields((*place.path, kind)):
            if isinstance(implementation.value, dict) and implementation.value.get("entrypoint", MISSING) != MISSING:
                return True
    return False


def _problems(errors: Sequence[ErrorDetails], block: dict[Any, Any]) -> tuple[str, ...]:
    """Pydantic's errors without those of the other members of its unions; what is said of one place is said once."""
    for kind in SERVER_TYPES:
        if isinstance(block.get(kind), dict) and len(block[kind]) > 1:
            names = ", ".join(str(name) for name in block[kind])
            return (f"{kind}: exactly one implementation stands here, not {len(block[kind])} ({names})",)
    places: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for error in errors:
        member, *location = (str(step) for step in error["loc"])
        # A member with a validator of its own is called "function-after[name(), Member]".
        if not any(cls.__name__ in member and kind in block for cls, kind in _TYPE_OF.items()):
            continue
        if not _fits_dataset(location, block):
            continue
        steps = tuple(step for step in location if not step.startswith("function-") and not step.endswith("DatasetConfig"))
        message = error["msg"].removeprefix("Value error, ")
        if message not in places[steps]:
            places[steps].append(message)
    told = []
    for steps, messages in places.items():
        where = ".".join(steps)
        told.append(f"{where}: {' / '.join(messages)}" if where else " / ".join(messages))
    return tuple(told) or ("it is no valid server block",)


def _fits_dataset(location: Sequence[str], block: dict[Any, Any]) -> bool:
    """Whether an error below ``datasets`` comes from the model of that dataset's type; for an unknown type only the type is told."""
    if len(location) < 5 or location[2] != "datasets":
        return True
    try:
        kind = block[location[0]][location[1]]["datasets"][int(location[3])].get("type")
    except (AttributeError, KeyError, TypeError, IndexError, ValueError):
        return True
    if kind == "benchmark":
        return "BenchmarkDatasetConfig" in location[4]
    if kind in ("train", "validation", "example"):
        return "BenchmarkDatasetConfig" not in location[4]
    return location[-1] == "type"
