"""The same rows through NeMo Gym alone and through ours: its servers with its driver in one container, our native servers with our driver.

One comparison for each environment server that both have. Records are compared byte for byte, key order included, but for what differs
from run to run (ids and times of the model endpoint); aggregate metrics number by number.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
import orjson

from bench.chain import PartError
from bench.peer_chain import AGENT, drive, image
from bench.peer_runtime import FILES, policy
from bench.peer_start import started
from gym_compose.project.ports import free_port
from gym_compose.testing import GymDeployment
from gym_compose.wire.errors import GymComposeError
from gym_compose.wire.settings import Settings

REPEATS = 2
TASKSET = "weather"
TOLERANCE = 1e-9
_EXAMPLE, _MODEL = FILES
_IDS = re.compile(r"\b(resp|call|fc|msg)_\d+\b")
_SHOWN = 3


@dataclass(frozen=True)
class Beside:
    """One comparison: configs and overrides that both sides get. ``taskset``: the rows go as materialized ones through a route."""

    environment_server: str
    configs: tuple[str, ...]
    overrides: tuple[str, ...] = ()
    agent: str | None = None
    taskset: bool = False

    @property
    def label(self) -> str:
        return f"beside/{self.environment_server}"


@dataclass(frozen=True)
class Compared:
    """What came of it. ``differences``: the first few, each with its place; empty when all is equal."""

    label: str
    rollouts: int = 0
    differences: tuple[str, ...] = field(default=())


COMPARISONS = (
    Beside("legacy_agent", (_EXAMPLE, _MODEL), agent=AGENT),
    Beside(
        "single_agent_turn_legacy",
        ("resources_servers/example_single_tool_call/configs/example_single_tool_call_single_agent_turn.yaml", _MODEL),
        agent="example_single_tool_call_session_agent",
    ),
    Beside(
        "single_agent_turn",
        (_EXAMPLE, "environment_servers/single_agent_turn/configs/single_agent_turn.yaml", _MODEL),
        overrides=(
            "++single_agent_turn.environment_servers.single_agent_turn.resources_server.name=example_single_tool_call",
            f"++single_agent_turn.environment_servers.single_agent_turn.agent_server.name={AGENT}",
            "++single_agent_turn.environment_servers.single_agent_turn.resources_tool_transports=[direct_http]",
            f"++environment_server_routes.{TASKSET}=single_agent_turn",
        ),
        taskset=True,
    ),
)


def compare(case: Beside, peer_root: Path, shared: Path, url: str, environ: Mapping[str, str]) -> Compared:
    """Both sides on the rows of ``golden/peer_run``, ``REPEATS`` times each. Never raises for what a side does: that is a difference."""
    try:
        with tempfile.TemporaryDirectory(prefix="gym-compose-beside-") as directory:
            place = Path(directory)
            rows = place / "rows.jsonl"
            rows.write_bytes(b"".join(_rows(case, shared / "golden" / "peer_run" / "rows.jsonl")))
            theirs = _theirs(case, place, rows, url)
            ours = _ours(case, place, rows, peer_root, url, environ)
            count = len(_records(theirs))
            return Compared(case.label, count, tuple(differences(theirs, ours))[:_SHOWN])
    except GymComposeError as error:
        said = " ".join((error.where or "", error.message, *error.details[-1:])).split()
        return Compared(case.label, 0, (" ".join(said)[:400],))


def differences(theirs: Path, ours: Path) -> Iterator[str]:
    """Between two rollouts files and the metrics beside them."""
    expected, found = _records(theirs), _records(ours)
    if len(expected) != len(found):
        yield f"{len(found)} rollouts of ours, {len(expected)} of NeMo Gym's"
    for their, our in zip(expected, found, strict=False):
        if orjson.dumps(their) != orjson.dumps(our):
            name = f"record {their.get('_ng_task_index')}-{their.get('_ng_rollout_index')}"
            yield first_difference(their, our, name) or f"{name}: the order of keys"
    their_metrics, our_metrics = (orjson.loads(_metrics(path).read_bytes()) for path in (theirs, ours))
    said = first_difference(their_metrics, our_metrics, "metrics")
    if said:
        yield said


def first_difference(theirs: Any, ours: Any, place: str) -> str:
    """The first place where two JSON values differ; key order counts, numbers may differ by ``TOLERANCE``. Empty when they are equal."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        if list(theirs) != list(ours):
            return f"{place}: keys {', '.join(ours)} where NeMo Gym has {', '.join(theirs)}"
        return next((said for key in theirs if (said := first_difference(theirs[key], ours[key], f"{place}.{key}"))), "")
    if isinstance(theirs, list) and isinstance(ours, list):
        if len(theirs) != len(ours):
            return f"{place}: {len(ours)} elements where NeMo Gym has {len(theirs)}"
        pairs = enumerate(zip(theirs, ours, strict=True))
        return next((said for number, (one, other) in pairs if (said := first_difference(one, other, f"{place}[{number}]"))), "")
    if _is_number(theirs) and _is_number(ours):
        same = math.isclose(theirs, ours, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    else:
        same = type(theirs) is type(ours) and theirs == ours
    return "" if same else f"{place}: {ours!r} where NeMo Gym has {theirs!r}"


def settled(record: Any) -> Any:
    """A record without what differs from run to run: ids and times of the model endpoint."""
    if isinstance(record, dict):
        return {key: settled(value) for key, value in record.items() if key != "created_at"}
    if isinstance(record, list):
        return [settled(item) for item in record]
    return _IDS.sub(r"\1_N", record) if isinstance(record, str) else record


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _records(path: Path) -> list[dict[str, Any]]:
    records = [settled(orjson.loads(line)) for line in path.read_bytes().splitlines()]
    return sorted(records, key=lambda record: (record["_ng_task_index"], record["_ng_rollout_index"]))


def _metrics(output: Path) -> Path:
    return output.with_name(f"{output.stem}_aggregate_metrics.json")


def _rows(case: Beside, golden: Path) -> Iterator[bytes]:
    for number, line in enumerate(golden.read_bytes().splitlines()):
        row = orjson.loads(line)
        if case.taskset:
            row = {"task_id": {"taskset": TASKSET, "task_id": f"t{number}"}, "task_input": row}
        yield orjson.dumps(row) + b"\n"


def _theirs(case: Beside, place: Path, rows: Path, url: str) -> Path:
    """Raises NotReadyError, PartError."""
    client = docker.from_env()
    try:
        tag = image(client)
        if tag is None:
            raise PartError("there is no image of it; `make peer example_single_tool_call` builds one", where="NeMo Gym")
        head, output = free_port(), place / "theirs.jsonl"
        overrides = [f"+config_paths=[{','.join(case.configs)}]", *case.overrides, *policy(url), f"++head_server.port={head}"]
        with started(client, tag, overrides, {str(place): {"bind": str(place), "mode": "rw"}}) as (container, _):
            routed = [f"++environment_server_routes.{TASKSET}={case.environment_server}"] if case.taskset else ["--agent", str(case.agent)]
            drive(container, head, rows, output, [*routed, "--num-repeats", str(REPEATS)])
        return output
    finally:
        client.close()


def _ours(case: Beside, place: Path, rows: Path, peer_root: Path, url: str, environ: Mapping[str, str]) -> Path:
    """Raises what ``GymDeployment`` raises."""
    output = place / "ours.jsonl"
    gym = GymDeployment(
        list(case.configs),
        overrides=[*case.overrides, *policy(url), f"++head_server.port={free_port()}"],
        engine="docker",
        cwd=place,
        environ=environ,
        settings=Settings.from_environ(environ),
        roots=[peer_root],
    )
    with gym:
        gym.collect(rows, output=output, num_repeats=REPEATS, agent_name=case.agent)
    return output
