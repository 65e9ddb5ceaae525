"""Each server of a config: does its image build, does its module import inside, does its root answer.

All of it is a throwaway project ``<name>-doctor`` beside the user's own, through the ``Engine`` interface alone, so it is the same boot,
user, limits, mounts and read-only root that ``up`` gives, in containers or as processes. Nothing of it is left, however it ends.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from gym_compose.compiler.deployment import Deployment, Image, Service
from gym_compose.doctor.check import Check, Findings
from gym_compose.engine.interface import Engine, Report, ServiceState
from gym_compose.engine.masking import deployment_redactor
from gym_compose.project.directory import ProjectDirectory
from gym_compose.project.http import HeadClient
from gym_compose.project.ports import free_port
from gym_compose.project.published import instance_addresses, write_published
from gym_compose.project.source import ProjectSource
from gym_compose.wire.deadline import Deadline
from gym_compose.wire.errors import GymComposeError, NotReadyError
from gym_compose.wire.head import HeadSecret, HealthReport
from gym_compose.wire.names import HEAD_SERVICE
from gym_compose.wire.settings import Settings

IMPORT_ONLY = "--import-only"
"""The launcher's flag: everything up to the server's own code, which is imported and not served."""
_LAUNCHER = "gym_compose.serving.launch"
SUFFIX = "-doctor"
_NAME_LENGTH = 63


def trial_name(project: str) -> str:
    """Of the throwaway project; the same each time, so that what a killed doctor left is taken away by the next."""
    return project[: _NAME_LENGTH - len(SUFFIX)] + SUFFIX


@dataclass(frozen=True)
class Trial:
    """One config tried on one engine. ``source`` was loaded under ``trial_name``; ``say`` takes lines of progress."""

    engine: Engine
    source: ProjectSource
    directory: ProjectDirectory
    settings: Settings
    say: Report

    def run(self, findings: Findings) -> None:
        """Three checks for each server, in three rounds: images, imports, roots. A server that fails one is left out of the next.

        Raises ProjectBusyError while another doctor tries the same config, CompileError, and what stopping raises.
        """
        with self.directory.lock(Deadline.after(self.settings.project_lock_seconds, "the doctor's project")), self._nothing_left():
            deployment = self._compiled()
            servers = [service for service in deployment.services if service.role == "server"]
            built = self.images(deployment, servers, findings)
            importable = self.imports(deployment, built, findings)
            if importable:
                self.roots(deployment, importable, findings)

    def _compiled(self) -> Deployment:
        """With a free port for the head whatever the config says: the user's own project may run."""
        return self.source.compile(self.directory, head_port=free_port(), session_key=self.directory.session_key())

    @contextmanager
    def _nothing_left(self) -> Iterator[None]:
        self._stop()
        try:
            yield
        finally:
            self._stop()
            shutil.rmtree(self.directory.path, ignore_errors=True)

    def _stop(self) -> None:
        self.engine.stop(self.directory.project, Deadline.after(self.settings.down_seconds, "the doctor's project to stop"), self._quiet)

    @staticmethod
    def _quiet(_: str) -> None:
        """What the engine says of the throwaway project is of no use to a reader."""

    # Images

    def images(self, deployment: Deployment, servers: Sequence[Service], findings: Findings) -> list[Service]:
        """The servers whose image is there now. The first one that is built pays for what all share. Empty when the head's cannot be."""
        self.source.write(deployment, self.directory)
        head = deployment.service(HEAD_SERVICE)
        if self._built(deployment, head, findings).status == "fail":
            return []
        return [service for service in servers if self._built(deployment, service, findings).status != "fail"]

    def _built(self, deployment: Deployment, service: Service, findings: Findings) -> Check:
        name = f"{service.instance or service.name}: image"
        part = replace(deployment, images=parents(deployment.images, service.image), services=(service,))
        started = time.monotonic()
        try:
            built = self.engine.build(part, self.directory.path, Deadline.after(None, "an image to be built"), self.say)
        except GymComposeError as error:
            return findings.add(Check.of_error(name, error))
        new = [image.name for image in built if image.built]
        where = service.image or "this interpreter"
        said = f"{where}: {len(new)} built in {time.monotonic() - started:.1f} s" if new else f"{where} is there"
        return findings.add(Check(name, "ok", said))

    # Imports

    def imports(self, deployment: Deployment, servers: Sequence[Service], findings: Findings) -> list[Service]:
        """The servers whose module can be imported, with the real boot up to there and no network; a few at a time. One with a command
        of its own (``image:``, a Dockerfile) cannot be asked, and goes on to the next round."""
        passed: list[Service] = []
        own = [service for service in servers if _LAUNCHER not in service.command]
        for service in own:
            findings.add(Check(f"{service.instance}: import", "ok", "not asked: its image has a command of its own"))
        asked = [service for service in servers if service not in own]
        for first in range(0, len(asked), max(1, self.settings.doctor_parallel)):
            batch = asked[first : first + max(1, self.settings.doctor_parallel)]
            self.say(f"importing {', '.join(str(service.instance) for service in batch)}")
            passed.extend(self._import(deployment, batch, findings))
        self._stop()
        return [service for service in servers if service in own or service in passed]

    def _import(self, deployment: Deployment, batch: Sequence[Service], findings: Findings) -> Iterator[Service]:
        part = replace(deployment, services=tuple(map(import_service, batch)), networks=(), head_secret=HeadSecret())
        started = time.monotonic()
        deadline = Deadline.after(self.settings.doctor_import_seconds, "modules to be imported")
        try:
            self._apply(part)
        except GymComposeError as error:
            for service in batch:
                findings.add(Check.of_error(f"{service.instance}: import", error))
            return
        waiting = {service.name: service for service in batch}
        while waiting:
            observed = self.engine.observe(part.project, self._brief())
            for name, service in list(waiting.items()):
                state = observed.state(name)
                if state is not None and state.status == "running" and not deadline.expired:
                    continue
                del waiting[name]
                check = self._imported(part, service, state, time.monotonic() - started)
                findings.add(check)
                if check.status != "fail":
                    yield service
            if waiting:
                threading.Event().wait(deadline.pause(self.settings.probe_interval_seconds))

    def _imported(self, deployment: Deployment, service: Service, state: ServiceState | None, seconds: float) -> Check:
        name = f"{service.instance}: import"
        if state is not None and state.status == "exited" and state.exit_code == 0:
            return Check(name, "ok", f"{_entry(service)} imports, after {seconds:.1f} s")
        if state is not None and state.status == "running":
            said = f"{_entry(service)} is not imported after {seconds:.0f} s: does it wait for a network, which it has none of here?"
            hint = "GYM_COMPOSE_DOCTOR_IMPORT_SECONDS gives it more time. Its last lines:"
        else:
            said = f"{_entry(service)} cannot be imported ({_ended(state)})"
            hint = "Is a requirement missing, or a key of the config? Its last lines:"
        return Check(name, "fail", said, hint, self._tail(deployment, service.name), NotReadyError.exit_code)

    # Roots

    def roots(self, deployment: Deployment, servers: Sequence[Service], findings: Findings) -> None:
        """Start the servers with their head server, as ``up`` does, and see whose root answers. Any HTTP answer counts."""
        left_out = {service.name for service in deployment.services if service.role == "server"} - {service.name for service in servers}
        part = replace(deployment, services=tuple(service for service in deployment.services if service.name not in left_out))
        started = time.monotonic()
        self.say(f"starting {len(servers)} servers")
        try:
            self._apply(part)
            published = self.engine.published(part.project, self._brief())
            write_published(self.directory, instance_addresses(part, published))
        except GymComposeError as error:
            findings.add(Check.of_error("start", error))
            return
        address = published.get(HEAD_SERVICE)
        if address is None:
            findings.add(self._dead(part, part.service(HEAD_SERVICE), self.engine.observe(part.project, self._brief()).state(HEAD_SERVICE)))
            return
        bound = part.head.server_spinup_timeout_seconds
        deadline = Deadline.after(bound if bound > 0 else self.settings.doctor_root_seconds, "roots to answer")
        with HeadClient(f"http://{address}", self.settings) as head:
            self._await_roots(part, servers, head, started, deadline, findings)

    def _await_roots(
        self, part: Deployment, servers: Sequence[Service], head: HeadClient, started: float, deadline: Deadline, findings: Findings
    ) -> None:
        waiting = {service.name: service for service in servers}
        while waiting:
            health = head.health()
            observed = self.engine.observe(part.project, self._brief())
            answered: Mapping[str, float] = health.answered if health is not None else {}
            for name, service in list(waiting.items()):
                state = observed.state(name)
                if state is None or state.status != "running":
                    findings.add(self._dead(part, service, state))
                elif service.instance in answered:
                    findings.add(Check(f"{service.instance}: root", "ok", f"answers, after {time.monotonic() - started:.1f} s"))
                elif deadline.expired:
                    findings.add(self._silent(part, service, health))
                else:
                    continue
                del waiting[name]
            control = observed.state(HEAD_SERVICE)
            if waiting and (control is None or control.status != "running"):
                findings.add(self._dead(part, part.service(HEAD_SERVICE), control))
                return
            if waiting:
                threading.Event().wait(deadline.pause(self.settings.probe_interval_seconds))

    def _dead(self, deployment: Deployment, service: Service, state: ServiceState | None) -> Check:
        return Check(
            f"{service.instance or service.name}: root",
            "fail",
            f"it ended ({_ended(state)})",
            "Its last lines:",
            self._tail(deployment, service.name),
            NotReadyError.exit_code,
        )

    def _silent(self, deployment: Deployment, service: Service, health: HealthReport | None) -> Check:
        last = next((item.detail for item in health.waiting if item.name == service.instance and item.detail), None) if health else None
        return Check(
            f"{service.instance}: root",
            "fail",
            f"no answer in time{f' ({last})' if last else ''}",
            "server_spinup_timeout_seconds gives it more. Its last lines:",
            self._tail(deployment, service.name),
            NotReadyError.exit_code,
        )

    # Both

    def _apply(self, part: Deployment) -> None:
        self.source.write(part, self.directory)
        observed = self.engine.observe(part.project, self._brief())
        deadline = Deadline.after(self.settings.compose_create_seconds, "the doctor's servers to start")
        self.engine.apply(part, self.directory.path, self.engine.plan(part, observed), deadline, self._quiet)

    def _brief(self) -> Deadline:
        return Deadline.after(self.settings.docker_call_seconds, "the state of the doctor's project")

    def _tail(self, deployment: Deployment, service: str) -> tuple[str, ...]:
        redactor = deployment_redactor(deployment).with_values(self.source.secret_values())
        lines = self.engine.logs(deployment.project, [service], follow=False, tail=self.settings.log_tail_lines)
        return tuple(redactor.text(line.text) for line in lines)


def import_service(service: Service) -> Service:
    """``service`` as one that imports its module and ends: no network, no port."""
    return replace(
        service, command=(*service.command, IMPORT_ONLY), attachments=(), network_mode="none", ports=(), extra_hosts=(), depends_on=()
    )


def parents(images: Sequence[Image], name: str) -> tuple[Image, ...]:
    """The image ``name`` and all that it is built from, in the deployment's order."""
    known = {image.name: image for image in images}
    wanted: set[str] = set()
    todo = [name]
    while todo:
        image = known.get(todo.pop())
        if image is not None and image.name not in wanted:
            wanted.add(image.name)
            todo.extend(image.depends_on)
    return tuple(image for image in images if image.name in wanted)


def _entry(service: Service) -> str:
    return service.slice.entrypoint if service.slice is not None else service.name


def _ended(state: ServiceState | None) -> str:
    if state is None:
        return "it is gone"
    return "killed for lack of memory" if state.oom_killed else f"exit code {state.exit_code}"
