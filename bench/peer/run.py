"""Starts one case in containers and runs one task through it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import yaml

from bench.peer.case import DUMMY, EXAMPLE, Case
from bench.peer.waiting import waiting_for
from gym_compose.compiler.document import plain
from gym_compose.compiler.slices import referenced
from gym_compose.config.model import GymConfig
from gym_compose.project.errors import ServerDiedError
from gym_compose.project.events import RunEvent
from gym_compose.project.ports import free_port
from gym_compose.testing import GymDeployment
from gym_compose.wire.errors import GymComposeError
from gym_compose.wire.run import RunProgress
from gym_compose.wire.settings import Settings

ROLLOUT_SECONDS = 60.0
SPINUP_SECONDS = 240


class RolloutTooLongError(GymComposeError):
    """Mostly a server that waits for a judge or a service which is not there."""


class RolloutFailedError(GymComposeError):
    """The one attempt failed; the message is what the sidecar says of it."""


@dataclass(frozen=True)
class Outcome:
    """What came of one case. ``rollout`` None: not tried."""

    label: str
    ready: bool = False
    ready_seconds: float | None = None
    rollout: bool | None = None
    writable: bool = False
    reason: str = ""
    images: tuple[str, ...] = ()
    """Image names of the deployment, built or found."""


def run_case(case: Case, peer_root: Path, url: str, environ: Mapping[str, str]) -> Outcome:
    """Never raises for what the case does: that is its outcome. Everything that was started is gone afterwards."""
    outcome = Outcome(case.label, writable=bool(case.writable))
    values = {**environ, **dict.fromkeys((*case.environment, "NVIDIA_API_KEY"), DUMMY)}
    with tempfile.TemporaryDirectory(prefix="gym-compose-peer-") as directory, ExitStack() as stops:
        config: GymConfig | None = None
        try:
            gym = _loaded(case, Path(directory), peer_root, url, values)
            stops.callback(gym.stop)
            config = gym.project.config  # a start that fails takes the project away
            if case.without:
                alone = _alone(config, case, Path(directory), peer_root, values)
                stops.callback(alone.stop)
                return _started_alone(alone, replace(outcome, reason=f"{', '.join(case.without)} asks for a GPU"))
            outcome = replace(outcome, images=tuple(image.name for image in gym.project.deployment.images))
            gym.project.build(_unbounded(gym), lambda _: None)
            started = time.monotonic()
            gym.start()
            outcome = replace(outcome, ready=True, ready_seconds=time.monotonic() - started)
            agent = _agent(gym.project.config, case)
            if case.rows and agent is not None:
                _rollout(gym, case, agent, peer_root)
                outcome = replace(outcome, rollout=True)
        except GymComposeError as error:
            outcome = replace(outcome, rollout=False if outcome.ready else None, reason=_said(error))
            if config is not None and not outcome.ready and isinstance(error, ServerDiedError) and error.service != case.instance:
                alone = _alone(config, case, Path(directory), peer_root, values)
                stops.callback(alone.stop)
                outcome = _started_alone(alone, outcome)
    return outcome


def _loaded(case: Case, cwd: Path, peer_root: Path, url: str, environ: Mapping[str, str]) -> GymDeployment:
    """The deployment, compiled. An agent template that wants an environment gets the example's config (contract-servers 6.2)."""
    first: GymComposeError | None = None
    for key, content in case.files:
        (cwd / f"{key}.file").write_text(content, encoding="utf-8")
    for configs in (case.configs, (EXAMPLE, *case.configs)):
        (cwd / "case.yaml").write_text(case.config(url, configs), encoding="utf-8")
        ours = (f"++server_spinup_timeout_seconds={SPINUP_SECONDS}", f"++head_server.port={free_port()}")
        overrides = [*case.overrides(url), *ours]
        gym = GymDeployment(
            "case.yaml",
            overrides=overrides,
            engine="docker",
            cwd=cwd,
            environ=environ,
            settings=Settings.from_environ(environ),
            roots=[peer_root],
        )
        try:
            gym.load()
        except GymComposeError as error:
            first = first or error
            continue
        return gym
    assert first is not None
    raise first


def _alone(config: GymConfig, case: Case, cwd: Path, peer_root: Path, environ: Mapping[str, str]) -> GymDeployment:
    """The case's own instance and what it refers to, where another server of its config does not start (it wants what is not there)."""
    wanted = referenced(config, case.instance)
    document = {name: plain(value) for name, value in config.resolved.items() if name in wanted}
    for name in wanted:
        instance = config.instance(name)
        block = document[name][instance.server_type][instance.implementation]
        block.pop("host", None)
        block.pop("port", None)
    document["compose"] = plain(config.extension)
    (cwd / "alone.yaml").write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    ours = [f"++server_spinup_timeout_seconds={SPINUP_SECONDS}", f"++head_server.port={free_port()}"]
    settings = Settings.from_environ(environ)
    return GymDeployment("alone.yaml", overrides=ours, engine="docker", cwd=cwd, environ=environ, settings=settings, roots=[peer_root])


def _started_alone(gym: GymDeployment, before: Outcome) -> Outcome:
    """``before`` with the server ready by itself; its reason says what of its config is not."""
    try:
        started = time.monotonic()
        gym.start()
    except GymComposeError as error:
        return replace(before, reason=f"{before.reason}; alone: {_said(error)}")
    return replace(before, ready=True, ready_seconds=time.monotonic() - started, reason=f"ready by itself; of its config: {before.reason}")


def _rollout(gym: GymDeployment, case: Case, agent: str, peer_root: Path) -> None:
    data = peer_root / "resources_servers" / case.rows / "data" / "example.jsonl"
    row: dict[str, Any] = orjson.loads(data.read_bytes().splitlines()[0])
    row.pop("agent_ref", None)

    def watch(event: RunEvent) -> None:
        if isinstance(event, RunProgress) and event.elapsed_seconds > ROLLOUT_SECONDS:
            seen = waiting_for(gym) or "it waits for a judge or a service that is not there"
            raise RolloutTooLongError(f"no answer within {ROLLOUT_SECONDS:.0f} s: {seen}")

    gym.collect([row], agent_name=agent, on_event=watch)
    summary = gym.last_summary
    if summary is None or summary.counts.completed != 1:
        failures = gym.directory.glob("testing/*/rollouts_failures.jsonl")
        raise RolloutFailedError(next((_failure(file) for file in failures), "the rollout failed"))


def _agent(config: GymConfig, case: Case) -> str | None:
    """The agent to ask: the case's own instance, the one that an environment server names, or the first one that uses the
    instance; None where the config has none."""
    agents = [instance.name for instance in config.instances if instance.server_type == "responses_api_agents"]
    if case.instance in agents:
        return case.instance
    called = [item.target for item in config.references if item.source == case.instance and item.target in agents]
    using = [item.source for item in config.references if item.target == case.instance and item.source in agents]
    return next(iter(called or using or agents), None)


def _failure(file: Path) -> str:
    """What the sidecar says of the one failed attempt."""
    lines = file.read_bytes().splitlines()
    record: dict[str, Any] = orjson.loads(lines[0]) if lines else {}
    keys = ("_ng_failure_message", "_ng_failure_response_body", "_ng_failure_judge_error", "failure_reason")
    said = dict.fromkeys(record.get(key) for key in keys)
    return " ".join(" ".join(str(part) for part in said if part).split())[:300] or "the rollout failed"


def _said(error: GymComposeError) -> str:
    """The error in one line, with the last line of its details (a traceback's message)."""
    last = next((line.strip() for line in reversed(error.details) if line.strip()), "")
    return " ".join(f"{error.where + ': ' if error.where else ''}{error.message} {last}".split())[:400]


def _unbounded(gym: GymDeployment) -> Any:
    from gym_compose.wire.deadline import Deadline

    return Deadline.after(gym.settings.build_seconds * 2, "the images")


def environment() -> dict[str, str]:
    """This process's environment without what would change a config."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("NEMO_GYM_", "POLICY_"))}
