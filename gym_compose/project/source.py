"""What a project is made from: the merged config, the server trees, and how to compile them, again if need be."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gym_compose import __version__
from gym_compose.compiler.assets import read_assets
from gym_compose.compiler.compile import compile as compile_deployment
from gym_compose.compiler.deployment import Deployment
from gym_compose.compiler.errors import HostFileError
from gym_compose.compiler.options import CompileOptions
from gym_compose.compiler.render import OutputFile, render
from gym_compose.compiler.slug import slug
from gym_compose.compiler.write import write
from gym_compose.config import load_config, require_instances
from gym_compose.config.model import GymConfig, ServerSource
from gym_compose.config.ports import PortAllocator, fixed, probe
from gym_compose.config.roots import installed_root
from gym_compose.config.sources import SearchRoot, find_sources, search_roots
from gym_compose.project import assets
from gym_compose.project.directory import ProjectDirectory
from gym_compose.project.naming import check_project_name, project_name
from gym_compose.project.options import HeadPort, ca_bundle, compile_options
from gym_compose.wire.names import ALIAS_SUFFIX, SERVER_PORT, EngineName
from gym_compose.wire.settings import Settings


@dataclass(frozen=True)
class Selection:
    """What the user chose, as it was given."""

    overrides: tuple[str, ...]
    cwd: Path
    environ: Mapping[str, str]
    roots: tuple[Path, ...] = ()
    publish: tuple[str, ...] = ()
    name: str | None = None


@dataclass(frozen=True)
class ProjectSource:
    """A selection, merged for one engine. Frozen; ``with_free_ports`` makes another one."""

    selection: Selection
    target: EngineName
    settings: Settings
    version: str
    config: GymConfig
    sources: Mapping[tuple[str, str], ServerSource]
    kept_ports: Mapping[str, int] = field(default_factory=dict)
    """Ports of an earlier start that this config was given again (process engine)."""
    upgrade: bool = False
    """Requirements are resolved anew, whatever is locked."""

    @classmethod
    def load(cls, selection: Selection, *, target: EngineName, settings: Settings) -> ProjectSource:
        """Merge and validate the config and find the server trees behind it. Raises the config's errors.

        With the process engine, a project that was started before gets the ports again that it had then.
        """
        if selection.name is not None:
            check_project_name(selection.name)
        config = _load(selection, target, None)
        require_instances(config)
        sources = find_sources(config, _server_roots(selection))
        if target == "docker":
            sources = {key: _with_context(source) for key, source in sources.items()}
        source = cls(selection, target, settings, __version__, config, sources)
        if target == "process":
            state = ProjectDirectory.under(selection.cwd, source.name).read_state()
            if state is not None and state.ports:
                return source._with_ports(state.ports)
        return source

    @property
    def name(self) -> str:
        return self.selection.name or project_name(self.config_paths, self.selection.cwd)

    @property
    def config_paths(self) -> tuple[str, ...]:
        """The merged config's own list, which names the selected configs first."""
        paths = self.config.merged.get("config_paths")
        return tuple(str(path) for path in paths) if isinstance(paths, Sequence) and not isinstance(paths, str) else ()

    @property
    def head_port(self) -> HeadPort:
        return HeadPort.of(self.config, self.selection.overrides)

    def secret_values(self) -> Iterator[str]:
        """Every secret string of the config, whether or not a slice holds it: what redaction must know."""
        for path in self.config.secret_paths:
            yield from _strings(_at(self.config.resolved, path))

    def ports_to_remember(self) -> dict[str, int]:
        """Ports that were allocated on this host, by instance. In containers all ports are fixed."""
        if self.target != "process":
            return {}
        return {instance.name: instance.port for instance in self.config.instances if not instance.port_pinned}

    def with_free_ports(self) -> ProjectSource:
        """With newly probed ports in place of kept ones, which somebody may have taken meanwhile; itself when none were kept."""
        if not self.kept_ports:
            return self
        return replace(self, config=_load(self.selection, self.target, None), kept_ports={})

    def _with_ports(self, ports: Mapping[str, int]) -> ProjectSource:
        """With the ports of ``ports`` where an instance of that name asks for one, in the order in which the config asks."""
        wanted = [ports.get(instance.name) for instance in self.config.instances if not instance.port_pinned]
        if not any(wanted):
            return self
        config = _load(self.selection, self.target, KeptPorts(wanted))
        return replace(self, config=config, kept_ports=dict(ports))

    # Compiling and writing

    def options(self, directory: ProjectDirectory, *, head_port: int, session_key: str | None) -> CompileOptions:
        return compile_options(
            self.config,
            self.sources,
            project=self.name,
            target=self.target,
            directory=directory,
            head_port=head_port,
            session_key=session_key,
            version=self.version,
            roots=tuple(root.path for root in _server_roots(self.selection)),
            settings=self.settings,
            publish=self.selection.publish,
            upgrade=self.upgrade,
        )

    def compile(self, directory: ProjectDirectory, *, head_port: int, session_key: str | None) -> Deployment:
        """Raises CompileError."""
        options = self.options(directory, head_port=head_port, session_key=session_key)
        try:
            return compile_deployment(self.config, self.sources, options)
        except HostFileError as error:
            script = self._maker_of(error.path)
            if script is not None:
                error.hint = f"It is made by {script}, which has not run yet: see `python {script} --help`."
            raise

    def _maker_of(self, path: str) -> str | None:
        """The prepare script of a dataset that stands in the same directory as ``path``: it makes what belongs to the dataset too."""
        for instance in self.config.instances:
            for dataset in _dicts(instance.block.get("datasets")):
                made, script = dataset.get("jsonl_fpath"), dataset.get("prepare_script")
                if isinstance(made, str) and isinstance(script, str) and Path(made).parent == Path(path).parent:
                    places = (root.path / script for root in _server_roots(self.selection))
                    return str(next((place for place in places if place.is_file()), script))
        return None

    def files(self, deployment: Deployment, directory: ProjectDirectory) -> tuple[OutputFile, ...]:
        """What ``write`` writes, as data."""
        return render(deployment, read_assets(assets.root()), str(directory.path), ca_bundle=ca_bundle(self.selection.environ))

    def write(self, deployment: Deployment, directory: ProjectDirectory) -> None:
        """Write the deployment's files. Raises PrerequisiteError, CompileError when a server's file changed since it was read."""
        write(self.files(deployment, directory), directory.path)


@dataclass
class KeptPorts:
    """A port allocator that gives each server, in order, the port it had; a free one where it had none or the config now pins it."""

    wanted: list[int | None]
    fresh: PortAllocator = field(default_factory=probe)
    offline: bool = False

    def allocate(self, low: int, high: int, disallowed: Collection[int]) -> int:
        port = self.wanted.pop(0) if self.wanted else None
        if port is None or port in disallowed:
            return self.fresh.allocate(low, high, (*disallowed, *(port for port in self.wanted if port is not None)))
        return port


def _load(selection: Selection, target: EngineName, ports: PortAllocator | None) -> GymConfig:
    docker = target == "docker"
    return load_config(
        selection.overrides,
        cwd=selection.cwd,
        environ=selection.environ,
        roots=selection.roots,
        ports=ports or (fixed(SERVER_PORT) if docker else probe()),
        install_root=installed_root(),
        host_for=_alias if docker else None,
    )


def _with_context(source: ServerSource) -> ServerSource:
    if source.runtime != "dockerfile":
        return source
    from gym_compose.engine.docker.context import with_context  # it brings the Docker SDK, for the few that need it

    return with_context(source)


def _alias(instance: str) -> str:
    return slug(instance) + ALIAS_SUFFIX


def _server_roots(selection: Selection) -> tuple[SearchRoot, ...]:
    return search_roots(
        selection.cwd, selection.environ, extra=selection.roots, install_root=installed_root(), native_root=assets.root() / "servers"
    )


def _dicts(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        yield from (item for item in value if isinstance(item, Mapping))


def _at(node: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        node = node[step]
    return node


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, int) and not isinstance(value, bool):
        yield str(value)  # a key of digits only is a number to YAML
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _strings(item)
