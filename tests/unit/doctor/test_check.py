"""Findings: told at once, and the exit code of the first failure."""

from __future__ import annotations

from gym_compose.doctor.check import Check, Findings
from gym_compose.wire.errors import BuildError, InvalidInputError


def test_findings_are_told_as_they_come_and_end_with_the_first_failures_code() -> None:
    told: list[str] = []
    findings = Findings(lambda check: told.append(check.name))
    assert findings.exit_code == 0
    findings.add(Check("a", "ok", "fine"))
    findings.add(Check("b", "warn", "hm", exit_code=9))
    assert findings.exit_code == 0
    findings.add(Check.of_error("c", BuildError("no wheel", where="image x", hint="Look.", details=("line",))))
    findings.add(Check.of_error("d", InvalidInputError("wrong")))
    assert told == ["a", "b", "c", "d"]
    assert findings.exit_code == BuildError.exit_code
    assert findings.checks[2] == Check("c", "fail", "image x: no wheel", "Look.", ("line",), BuildError.exit_code)
    assert findings.checks[3].said == "wrong"
