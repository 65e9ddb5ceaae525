"""``gym env validate``: everything that can be checked without starting. A config; or a workload's manifest and its data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gym_compose.cli.console import Console
from gym_compose.cli.session import Session
from gym_compose.cli.translate import Invocation
from gym_compose.wire.errors import GymComposeError

if TYPE_CHECKING:
    from gym_compose.config.model import GymConfig
    from gym_compose.project.project import Project
    from gym_compose.tasks.validation import ManifestReport

_MANIFEST_KEYS = frozenset({"onboarding_name", "catalog_kind", "manifest_path", "sync", "json", "verbose"})


def run(call: Invocation, console: Console) -> int:
    """The manifest of ``NAME`` or ``--manifest`` where one is asked for, else the config of the command line."""
    if call.args.onboarding_name or call.args.manifest:
        return _manifest(call, console)
    if call.args.kind or call.args.sync or call.json:
        raise GymComposeError("--kind, --sync and --json need a workload NAME or --manifest.")
    return _config(Session(call, console))


def _config(session: Session) -> int:
    """Merge, references, server directories, what the compiler needs of each image, files that the config names."""
    from gym_compose.config import ConfigError

    try:
        project = session.load(engine=session.docker())
    except ConfigError as error:
        if session.call.args.strict:
            raise
        config = _without_model(session, error)
        session.console.err(f"Warning: valid only with a model: {error}")
        session.console.out(f"Configuration is valid: {_count(len(config.instances), 'server')}.")
        return 0
    for warning in (*_files(session, project), *_tasksets(project), *_port(session, project)):
        session.console.err(f"Warning: {warning}")
    config, images = project.config, project.deployment.images
    told = (_count(len(config.instances), "server"), _count(len(config.references), "reference"), _count(len(images), "image"))
    session.console.out(f"Configuration is valid: {', '.join(told)}.")
    return 0


def _files(session: Session, project: Project) -> list[str]:
    """What a run would miss: datasets, their prompts, their scripts. The servers start without them."""
    from gym_compose.cli.listing import component_roots
    from gym_compose.tasks.datasets import declared_datasets, locate

    missing = {(dataset.instance, dataset.name, dataset.type) for dataset in project.deployment.datasets if dataset.sha256 is None}
    roots = component_roots(session.call)
    found = []
    for dataset in declared_datasets(project.config.resolved):
        made = dataset.prepare_script
        if (dataset.instance, dataset.name, dataset.type) in missing:
            found.append(f"{dataset.label} is not on disk: {dataset.jsonl_fpath}{f'; {made} makes it' if made else ''}.")
        if made is not None and locate(made, roots) is None:
            found.append(f"the prepare_script of {dataset.label} is not on disk: {made}.")
        if dataset.prompt_config is not None and locate(dataset.prompt_config, roots) is None:
            found.append(f"the prompt_config of {dataset.label} is not on disk: {dataset.prompt_config}.")
    return found


def _tasksets(project: Project) -> list[str]:
    """Datasets of tasksets that no route leads to the right server: the servers start without them, their rows go nowhere."""
    from gym_compose.tasks.agents import resolve_dataset_agent
    from gym_compose.tasks.datasets import declared_datasets
    from gym_compose.tasks.errors import DatasetAgentError

    found = []
    for dataset in declared_datasets(project.config.resolved):
        if dataset.taskset is None:
            continue
        try:
            resolve_dataset_agent(project.config.resolved, dataset.instance, pin=dataset.agent, taskset=dataset.taskset)
        except DatasetAgentError as error:
            found.append(f"{dataset.label}: {error.message}. {error.hint or ''}".rstrip())
    return found


def _port(session: Session, project: Project) -> list[str]:
    """A head port that the config names and that somebody else has now."""
    from gym_compose.project.options import HeadPort
    from gym_compose.project.ports import is_free

    head, state = HeadPort.of(project.config, session.call.overrides), project.state()
    if not head.explicit or is_free(head.wanted) or (state is not None and state.head_port == head.wanted):
        return []
    return [f"port {head.wanted} of the head server is in use on this machine; a start would be refused."]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _without_model(session: Session, first: GymComposeError) -> GymConfig:
    """The config with a stand-in for the policy model. Raises ``first`` when that does not help."""
    from gym_compose.cli.env import load_only
    from gym_compose.config import NO_MODEL, ConfigError, find_sources
    from gym_compose.config.dummy import DUMMY
    from gym_compose.config.roots import installed_root, native_root
    from gym_compose.config.sources import search_roots

    try:
        config = load_only(session, initial=NO_MODEL)
    except ConfigError:
        raise first from None
    known = tuple(instance for instance in config.instances if instance.implementation != DUMMY)
    if not known:
        raise first from None
    config = replace(config, instances=known)
    roots = search_roots(session.cwd, session.call.environ, install_root=installed_root(), native_root=native_root() / "servers")
    find_sources(config, roots)
    return config


def _manifest(call: Invocation, console: Console) -> int:
    """The report of one manifest: lines, or with ``--json`` the field's document."""
    from gym_compose.cli import catalog
    from gym_compose.cli.listing import component_roots
    from gym_compose.tasks.validation import validate_manifest

    name, given = call.args.onboarding_name, call.args.manifest
    if name and given:
        raise GymComposeError("a workload NAME and --manifest name two manifests.", hint="Give one of them.")
    if given and call.args.kind:
        raise GymComposeError("--kind tells workloads of one NAME apart; --manifest names a file.")
    extras = sorted({token.lstrip("+").split("=", 1)[0] for token in call.overrides} - _MANIFEST_KEYS)
    if extras:
        raise GymComposeError(f"a manifest is checked against its config alone: {', '.join(extras)} has no place here.")
    roots = component_roots(call)
    config = None
    if name:
        workload = catalog.find_workload(name, call.args.kind, catalog.workloads(roots))
        if workload.manifest is None:
            flag = f"--resources-server {workload.selector}" if workload.selector else f"--{workload.kind} {name}"
            raise GymComposeError(f"'{name}' has no manifest.", hint=f"Its config is checked with gym env validate {flag}.")
        given, config = workload.manifest, workload.config
    path = call.cwd / Path(given)
    report = validate_manifest(path, config=config, sync=call.args.sync, cwd=call.cwd, environ=call.environ, last=roots)
    for warning in report.warnings:
        console.err(f"Warning: {warning}")
    if call.json:
        console.json(report.as_json())
    else:
        _show(report, console)
    return 0


def _show(report: ManifestReport, console: Console) -> None:
    console.out(f"Manifest is valid: {report.kind} {report.name} {report.version}.")
    agreed = "" if report.inferred_profile == report.declared_profile else f" (code: {report.inferred_profile})"
    console.out(f"Profile: {report.declared_profile}{agreed}; {report.profile_evidence}.")
    rows: list[tuple[Any, ...]] = [(c.role, c.name, f"{c.boundary}/{c.implementation}") for c in report.components]
    rows += [(f"dataset ({d.type})", d.name, f"{_count(d.rows, 'row')}, {d.path}") for d in report.datasets]
    console.table(("part", "name", "what"), rows)
    if report.synchronized_fields:
        console.out(f"Written anew from the config: {', '.join(report.synchronized_fields)}.")
