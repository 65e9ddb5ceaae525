"""What ``gym`` does with its arguments, against the recorded behaviour of NeMo Gym 0.7.0 (golden/cli.jsonl.gz)."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gym_compose import resolve_command

LEFT_OUT = {
    "disallowed_ports", "results_dir", "cache_dir", "uv_cache_dir", "uv_venv_dir", "uv_lock_timeout_seconds", "python_version",
    "head_server_deps",
}  # fmt: skip


@pytest.fixture(scope="session")
def cases(golden_directory: Path) -> list[dict[str, Any]]:
    with gzip.open(golden_directory / "cli.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_every_recorded_command_ends_the_same(cases: list[dict[str, Any]], peer_root: Path, tmp_path: Path) -> None:
    """Target, overrides, exit status, error class, merged config and its key order; in one test, so that one run lists all differences."""
    differences: list[str] = []
    outcomes: Counter[str] = Counter()
    for case in cases:
        got = outcome(case["cli"], peer_root, tmp_path)
        want = {key: value for key, value in case.items() if key not in ("cli", "deprecation_warning")}
        differences.extend(
            f"{' '.join(case['cli'])}\n  {key}: {_first_difference(want.get(key), got.get(key))}"
            for key in sorted(want.keys() | got.keys())
            if json.dumps(got.get(key)) != json.dumps(want.get(key))
        )
        outcomes[want.get("error") or ("exit" if "exit" in want else "merged")] += 1
    assert len(cases) >= 261
    assert {"exit", "merged", "ServerRefNotFoundError", "ConfigInterpolationError"} <= outcomes.keys()
    assert not differences, f"{len(differences)} differences in {len(cases)} cases:\n" + "\n".join(differences[:20])


def outcome(argv: list[str], root: Path, cwd: Path) -> dict[str, Any]:
    """Our answer in the golden file's form."""
    command = resolve_command(argv, cwd=cwd, environ={}, install_root=root)
    if command.exit is not None:
        return {"exit": command.exit}

    def place(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: place(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [place(inner) for inner in value]
        return value.replace(str(root), "{root}").replace(str(cwd), "{cwd}") if isinstance(value, str) else value

    found: dict[str, Any] = {"target": command.target, "overrides": place(command.overrides)}
    if command.error is not None:
        return {**found, "error": type(command.error).__name__}
    assert command.merged is not None
    merged = {key: value for key, value in place(command.merged).items() if key not in LEFT_OUT}
    _mask_ports(merged)
    return {**found, "merged": merged}


def _mask_ports(merged: dict[str, Any]) -> None:
    """A port that was allocated (offline: -1) stands as ``{auto}``."""
    for value in merged.values():
        for kind in value.values() if isinstance(value, dict) else ():
            for block in kind.values() if isinstance(kind, dict) else ():
                if isinstance(block, dict) and block.get("port") == -1:
                    block["port"] = "{auto}"


def _first_difference(want: Any, got: Any, path: str = "") -> str:
    if isinstance(want, dict) and isinstance(got, dict):
        if list(want) != list(got) and want.keys() == got.keys():
            return f"{path or 'top level'}: order of keys {list(got)}, not {list(want)}"
        for key in want.keys() | got.keys():
            if key not in want or key not in got:
                return f"{path}.{key}: {'missing' if key not in got else 'too much'}"
            if json.dumps(want[key]) != json.dumps(got[key]):
                return _first_difference(want[key], got[key], f"{path}.{key}")
    if isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        for index, pair in enumerate(zip(want, got, strict=True)):
            if pair[0] != pair[1]:
                return _first_difference(*pair, f"{path}[{index}]")
    return f"{path}: {str(got)[:200]!r}, not {str(want)[:200]!r}"
