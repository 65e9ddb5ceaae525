"""Every golden config case: merged config equal key for key, or error class equal (issue 4)."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gym_compose.config import ConfigError, resolve_config

LEFT_OUT = frozenset(
    {
        "disallowed_ports",
        "results_dir",
        "cache_dir",
        "uv_cache_dir",
        "uv_venv_dir",
        "uv_lock_timeout_seconds",
        "python_version",
        "head_server_deps",
    }
)
SECONDS = 60.0  # CPU; 6 s on a quiet machine, and some are three times as slow at times; `make bench` holds the figure
OTHER_END = "omegaconf==2.4.0"


def difference(expected: Any, actual: Any, path: str = "") -> str | None:
    """Where the two differ, order of keys and types of values included; None when they are equal. ``{auto}`` stands for a port."""
    if expected == "{auto}":
        return None if isinstance(actual, int) else f"{path}: no port but {actual!r}"
    if type(expected) is not type(actual):
        return f"{path}: {expected!r} is not {actual!r}"
    if isinstance(expected, dict):
        if list(expected) != list(actual):
            return f"{path}: keys {list(expected)} are not {list(actual)}"
        found = (difference(value, actual[key], f"{path}.{key}") for key, value in expected.items())
        return next((text for text in found if text), None)
    if isinstance(expected, list):
        if len(expected) != len(actual):
            return f"{path}: {len(expected)} items are not {len(actual)}"
        found = (difference(*pair, f"{path}[{index}]") for index, pair in enumerate(zip(expected, actual, strict=True)))
        return next((text for text in found if text), None)
    return None if expected == actual else f"{path}: {expected!r} is not {actual!r}"


def run_case(case: dict[str, Any], argv: list[str], root: Path, cwd: Path) -> str | None:
    """What differs from the peer in one case; None when nothing does."""
    warnings: list[str] = []
    try:
        merged = resolve_config(argv, cwd=cwd, environ={}, roots=[root], hide_secrets=True, warnings=warnings)
    except ConfigError as error:
        got = type(error).__name__
        if not str(error).strip() or "\n" in str(error):
            return f"{got} without one line of text: {error}"
        return None if got == case.get("error") else f"{case.get('error', 'a config')} expected, got {got}: {error}"
    if "error" in case:
        return f"{case['error']} expected, got a config"
    expected = json.loads(json.dumps(case["merged"]).replace("{root}", str(root)).replace("{cwd}", str(cwd)))
    told = difference(expected, {key: value for key, value in merged.items() if key not in LEFT_OUT})
    if told is None and any("deprecated" in warning for warning in warnings) != case["deprecation_warning"]:
        told = f"deprecation_warning is not {case['deprecation_warning']}: {warnings}"
    return told


def run_all(cases: list[tuple[str, dict[str, Any], list[str]]], root: Path, cwd: Path) -> tuple[Counter[str], Counter[str], list[str]]:
    equal: Counter[str] = Counter()
    total: Counter[str] = Counter()
    different = []
    for name, case, argv in cases:
        kind = case.get("error", "merged")
        total[kind] += 1
        told = run_case(case, argv, root, cwd)
        if told is None:
            equal[kind] += 1
        else:
            different.append(f"{name}: {told}")
    return equal, total, different


def read(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def config_cases(golden: Path) -> list[tuple[str, dict[str, Any], list[str]]]:
    return [(f"{case['file']} (with model: {case['with_model']})", case, case["argv"]) for case in read(golden / "configs.jsonl.gz")]


def test_every_golden_config_case_is_equal(
    golden_directory: Path, peer_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = config_cases(golden_directory)
    started = time.process_time()  # of this process: other work on the machine does not count
    equal, total, different = run_all(cases, peer_root, tmp_path)
    seconds = time.process_time() - started
    with capsys.disabled():
        rows = ", ".join(f"{kind} {equal[kind]}/{count}" for kind, count in sorted(total.items()))
        print(f"\ngolden configs: {sum(equal.values())}/{len(cases)} equal in {seconds:.1f} s ({rows})")
    assert not different, "\n".join(different[:20])
    assert len(cases) >= 700
    assert seconds < SECONDS


def test_every_golden_command_merges_to_the_same_config(golden_directory: Path, peer_root: Path, tmp_path: Path) -> None:
    """The overrides that the peer's command line became, without the command line: that is what test_golden_cli is about."""
    cases = [
        (" ".join(case["cli"]), case, [token.replace("{root}", str(peer_root)) for token in case["overrides"]])
        for case in read(golden_directory / "cli.jsonl.gz")
        if "overrides" in case
    ]
    _, _, different = run_all(cases, peer_root, tmp_path)
    assert not different, "\n".join(different[:20])
    assert len(cases) > 200


@pytest.mark.slow
def test_the_other_end_of_the_omegaconf_range_gives_the_same(golden_directory: Path, peer_root: Path, tmp_path: Path) -> None:
    """The environment has the one end that Hydra's metadata allows; the other is put before it on the path of a child process."""
    directory = Path(__file__).resolve().parents[2] / ".cache" / "omegaconf-2.4.0"
    if not (directory / "omegaconf").is_dir():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(directory), OTHER_END]
        done = subprocess.run(install, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            pytest.skip(f"{OTHER_END} cannot be had: {done.stderr.strip()[-200:]}")
    repository = Path(__file__).resolve().parents[2]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(directory), str(repository)])}
    command = [sys.executable, "-W", "error::UserWarning", __file__, str(golden_directory), str(peer_root), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=environ)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.startswith("2.4."), done.stdout


if __name__ == "__main__":
    import omegaconf

    _equal, _total, _different = run_all(config_cases(Path(sys.argv[1])), Path(sys.argv[2]), Path(sys.argv[3]))
    print(omegaconf.__version__, dict(_equal), dict(_total))
    print("\n".join(_different[:10]))
    sys.exit(1 if _different else 0)
