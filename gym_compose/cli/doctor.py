"""``gym compose doctor``: is everything here, and does each server of a config build, import and answer."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gym_compose.cli.console import Console
from gym_compose.cli.session import Session
from gym_compose.cli.translate import Invocation
from gym_compose.doctor.check import Check, Findings, Status
from gym_compose.wire.errors import GymComposeError

if TYPE_CHECKING:
    from gym_compose.doctor.host import Host
    from gym_compose.engine.interface import Engine

_MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}


def run(call: Invocation, console: Console) -> int:
    """Prints each check as it is made. 0 when none failed, else the exit code of the first that did.

    Without a config the machine alone is looked at.
    """
    from gym_compose.doctor.host import Host, host_checks

    session = Session(call, console)
    findings = Findings((lambda _: None) if call.json else (lambda check: show(check, console)))
    host = Host(call.environ, session.cwd, Path(sys.executable))
    for check in host_checks(host):
        findings.add(check)
    engine = _engine(session, host, findings)
    if call.overrides and engine is not None:
        _servers(session, engine, findings)
    if call.json:
        console.json({"checks": [dataclasses.asdict(check) for check in findings.checks], "exit_code": findings.exit_code})
    else:
        _total(findings, console)
    return findings.exit_code


def show(check: Check, console: Console) -> None:
    """One line, what to do below it, details indented."""
    console.out(f"{_MARKS[check.status]}  {check.name}: {check.said}")
    for line in (*((check.hint,) if check.hint else ()), *check.details):
        console.out(f"      {line}")


def _engine(session: Session, host: Host, findings: Findings) -> Engine | None:
    """The engine that the flags ask for, looked at; None where there is none. ``auto`` takes processes where Docker cannot be used."""
    wanted = session.wanted_engine
    engine = _docker(session, host, findings, "warn" if wanted == "auto" else "fail") if wanted != "process" else None
    return engine if engine is not None or wanted == "docker" else _processes(session, findings)


def _docker(session: Session, host: Host, findings: Findings, lacking: Status) -> Engine | None:
    """None where Docker cannot be used; what is missing then counts as ``lacking``."""
    from gym_compose.doctor.docker import NEEDED, docker_checks
    from gym_compose.engine.docker.engine import DockerEngine

    usable = True
    try:
        engine = DockerEngine(session.call.environ, session.settings)
    except GymComposeError as error:  # an engine on another machine
        findings.add(Check.of_error(NEEDED[0], error, lacking))
        return None
    for check in docker_checks(engine, host, session.settings, session.report):
        missing = check.status == "fail" and check.name in NEEDED
        usable = usable and not missing
        findings.add(dataclasses.replace(check, status=lacking) if missing else check)
    return engine if usable else None


def _processes(session: Session, findings: Findings) -> Engine | None:
    try:
        engine = session.engine("process")
    except GymComposeError as error:
        findings.add(Check.of_error("process engine", error))
        return None
    findings.add(
        Check("process engine", "ok", "servers run as processes of this host: native ones only, without limits or closed networks")
    )
    return engine


def _servers(session: Session, engine: Engine, findings: Findings) -> None:
    """The checks of the command line's config. A config that cannot be used is a failed check like another."""
    from gym_compose.doctor.servers import Trial, trial_name
    from gym_compose.project.directory import ProjectDirectory
    from gym_compose.project.source import ProjectSource, Selection

    call = session.call
    selection = Selection(call.overrides, session.cwd, call.environ, publish=session.publish, name=session.project_name)
    try:
        plain = ProjectSource.load(selection, target=engine.name, settings=session.settings)
        source = dataclasses.replace(plain, selection=dataclasses.replace(selection, name=trial_name(plain.name)))
        directory = ProjectDirectory.under(session.cwd, source.name)
        Trial(engine, source, directory, session.settings, session.report).run(findings)
    except GymComposeError as error:
        findings.add(Check.of_error("config", error))


def _total(findings: Findings, console: Console) -> None:
    counts = {status: sum(check.status == status for check in findings.checks) for status in _MARKS}
    console.err(f"{len(findings.checks)} checks: {counts['ok']} ok, {counts['warn']} to look at, {counts['fail']} failed.")
