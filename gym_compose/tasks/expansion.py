"""What becomes of the rows of an input file before they are sent: mapping, fan-out, repeats, seeds (contract-data 1.4)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gym_compose.tasks.errors import RowError, RowOptionsError
from gym_compose.tasks.prompt import Prompt, has_input
from gym_compose.tasks.rows import (
    AGENT_REF,
    ENVIRONMENT_SERVER,
    PARAMS,
    ROLLOUT_INDEX,
    SKILLS_REF,
    TASK_INDEX,
    InputRow,
    agent_of,
    source_of,
    taskset_of,
)
from gym_compose.tasks.table import Counters, IndexTable

DEFAULT = "_default"
_LISTED = 20

Route = Callable[[Mapping[str, Any]], str | None]
"""The environment server that the routing mode chooses for a row; None: by its agent. Raises for a row that has no route."""


@dataclass(frozen=True)
class ExpansionOptions:
    """Fields of the rollout configuration that change rows (contract-data 1.2)."""

    agent_name: str | None = None
    agent_map: Mapping[str, str] = field(default_factory=dict)
    fan_out: Mapping[str, Sequence[str]] = field(default_factory=dict)
    num_repeats: int | Mapping[str, int] = 1
    num_repeats_add_seed: bool = False
    responses_create_params: Mapping[str, Any] = field(default_factory=dict)
    prompt: Prompt | None = None
    skills_ref: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class ExpandedRow:
    """A row as it is dispatched, with the line of the input that it comes from."""

    row: dict[str, Any]
    line: int

    @property
    def rollout(self) -> int:
        return int(self.row[ROLLOUT_INDEX])


class Expander:
    """Expands the rows of one input, in file order. One use: its counters are those of one run.

    Raises RowOptionsError for options that contradict each other. ``warnings`` is complete when ``expand`` has ended.
    """

    def __init__(self, options: ExpansionOptions, route: Route, path: Path) -> None:
        self._options = options
        self._route = route
        self._path = path
        self._map = _agent_map(options)
        _check(options)
        # 8 bytes of a hash instead of the text: tasks are told apart by raw line (step 7). Among a million lines, two that differ share a
        # hash with a probability of 3e-8.
        self._tasks = IndexTable()
        self._rollouts = Counters()
        self._no_agent: list[int] = []
        self._with_input: list[int] = []
        self._no_repeats: set[str] = set()
        self._seen: set[str] = set()
        self._remapped: set[tuple[str, str]] = set()
        self.warnings: list[str] = []

    def expand(self, rows: Iterable[InputRow]) -> Iterator[ExpandedRow]:
        """The rows to dispatch, before interleaving.

        Raises RowError for a row that cannot be used at once; rows without an agent, without an entry in ``num_repeats`` or with an
        input beside a prompt are collected and raised in one RowOptionsError at the end, so nothing may be sent before that.
        """
        for source in rows:
            yield from self._expand(source)
        self._raise_collected()
        if self._remapped:
            pairs = ", ".join(f"{old} -> {new}" for old, new in sorted(self._remapped))
            self.warnings.append(f"agent_map sends rows to another agent than their agent_ref names: {pairs}")
        if isinstance(self._options.num_repeats, Mapping):
            unused = sorted(set(self._options.num_repeats) - {DEFAULT} - self._seen)
            if unused:
                self.warnings.append(f"num_repeats has entries that no row of the input uses: {', '.join(unused)}")

    def _expand(self, source: InputRow) -> Iterator[ExpandedRow]:
        row = source.row
        options = self._options
        if options.prompt is not None:
            if has_input(row):
                self._with_input.append(source.index)
                return
            row = options.prompt.apply(row)
        taskset = taskset_of(row)
        try:
            server = self._route(row)
        except ValueError as error:
            raise RowError(str(error), path=self._path, line=source.line) from None
        agent = agent_of(row)
        origin = source_of(row)
        basis = agent if agent is not None else origin
        if server is not None:
            basis = taskset or origin or server
        else:
            agent = self._mapped(row, agent, origin)
        targets = self._targets(server, basis, agent, origin)
        if not targets:
            self._no_agent.append(source.index)
            return
        if taskset is None:
            self._change_flat(row, source.line)
        else:
            self._refuse_changes(source.line)
        index = self._task_index(row, source)
        if server is not None:
            row[ENVIRONMENT_SERVER] = server
        for target in targets:
            for _ in range(self._repeats(target, basis)):
                yield ExpandedRow(self._copy(row, target, index, source.line), source.line)

    def _mapped(self, row: dict[str, Any], agent: str | None, origin: str | None) -> str | None:
        """The agent after ``agent_map``; a hit replaces ``agent_ref`` even by the same name, dropping its other keys (step 3)."""
        if not self._map:
            return agent
        keys = [key for key in (agent, origin, DEFAULT) if key is not None and key in self._map]
        if not keys:
            return agent
        mapped = self._map[keys[0]]
        if agent is not None and agent != mapped:
            self._remapped.add((agent, mapped))
        row[AGENT_REF] = {"name": mapped}
        return mapped

    def _targets(self, server: str | None, basis: str | None, agent: str | None, origin: str | None) -> Sequence[str | None]:
        if server is not None:
            return (None,)
        if basis is not None and basis in self._options.fan_out:
            return tuple(self._options.fan_out[basis])
        if agent is not None:
            return (agent,)
        return (None,) if origin is not None else ()

    def _change_flat(self, row: dict[str, Any], line: int) -> None:
        params = row.get(PARAMS)
        if not isinstance(params, dict):
            state = "is not an object" if PARAMS in row else "is missing"
            hint = "A flat row needs it; a materialized one has task_id.taskset and task_input instead."
            raise RowError(f"{PARAMS} {state}", path=self._path, line=line, hint=hint)
        row[PARAMS] = params | dict(self._options.responses_create_params)
        if self._options.skills_ref is not None:
            row[SKILLS_REF] = dict(self._options.skills_ref)

    def _refuse_changes(self, line: int) -> None:
        options = self._options
        for wanted, name in (
            (options.responses_create_params, "responses_create_params overrides"),
            (options.skills_ref is not None, "skills"),
            (options.num_repeats_add_seed, "num_repeats_add_seed"),
        ):
            if wanted:
                raise RowError(f"{name} cannot be applied to a materialized row", path=self._path, line=line)

    def _task_index(self, row: dict[str, Any], source: InputRow) -> int:
        if TASK_INDEX not in row:
            key = int.from_bytes(hashlib.blake2b(source.text, digest_size=8).digest(), "big")
            row[TASK_INDEX] = self._tasks.setdefault(key, len(self._tasks))
        index = row[TASK_INDEX]
        if not isinstance(index, int) or isinstance(index, bool) or not -(2**63) <= index < 2**63:
            raise RowError(f"{TASK_INDEX} is a whole number of 64 bits, not {index!r}", path=self._path, line=source.line)
        return index

    def _repeats(self, target: str | None, basis: str | None) -> int:
        keys = [key for key in dict.fromkeys((target, basis)) if key is not None]
        self._seen.update(keys)
        repeats = self._options.num_repeats
        if isinstance(repeats, int):
            return repeats
        for key in (*keys, DEFAULT):
            if key in repeats:
                return repeats[key]
        self._no_repeats.add(" / ".join(keys))
        return 0

    def _copy(self, base: dict[str, Any], target: str | None, index: int, line: int) -> dict[str, Any]:
        row = base.copy()
        if target is not None and agent_of(row) != target:
            row[AGENT_REF] = {"name": target}
        rollout = row[ROLLOUT_INDEX] = self._rollouts.next(index)
        if self._options.num_repeats_add_seed:
            row[PARAMS] = _with_seed(row[PARAMS], rollout, self._path, line)
        return row

    def _raise_collected(self) -> None:
        if self._with_input:
            raise RowOptionsError(
                f"rows {_some(self._with_input)} have a responses_create_params.input, and a prompt_config is given",
                where=str(self._path),
                hint="Use one of the two. Rows count from 0.",
            )
        if self._no_agent:
            raise RowOptionsError(
                f"no agent for rows {_some(self._no_agent)} (counting from 0)",
                where=str(self._path),
                hint="Give --agent, an agent_map with _default, or rows with agent_ref or task_source.",
            )
        if self._no_repeats and isinstance(self._options.num_repeats, Mapping):
            raise RowOptionsError(
                f"num_repeats has no entry for {', '.join(sorted(self._no_repeats))}",
                where=str(self._path),
                hint=f"It has: {', '.join(sorted(self._options.num_repeats))}. {DEFAULT} covers the rest.",
            )


def _agent_map(options: ExpansionOptions) -> Mapping[str, str]:
    if options.agent_name is None:
        return options.agent_map
    default = options.agent_map.get(DEFAULT, options.agent_name)
    if default != options.agent_name:
        raise RowOptionsError(f"agent_name is {options.agent_name!r}, and agent_map.{DEFAULT} is {default!r}", hint="Give one of them.")
    return {**options.agent_map, DEFAULT: options.agent_name}


def _check(options: ExpansionOptions) -> None:
    repeats = options.num_repeats
    values = list(repeats.values()) if isinstance(repeats, Mapping) else [repeats]
    if not values or any(value < 1 for value in values):
        raise RowOptionsError(f"num_repeats is {repeats!r}", hint="It is 1 or more, or a mapping to such numbers.")
    for key, agents in options.fan_out.items():
        if not agents or len(set(agents)) != len(agents):
            raise RowOptionsError(f"fan_out.{key} is {list(agents)!r}", hint="It lists one agent or more, each once.")


def _with_seed(params: Mapping[str, Any], seed: int, path: Path, line: int) -> dict[str, Any]:
    """Parameters with ``seed`` in ``metadata.extra_body``, which is a JSON text (contract-data 1.4 step 11)."""
    metadata = dict(params.get("metadata") or {})
    try:
        extra = json.loads(metadata.get("extra_body", "{}"))
    except (ValueError, TypeError):
        extra = None
    if not isinstance(extra, dict):
        raise RowError("metadata.extra_body is not the text of a JSON object", path=path, line=line)
    metadata["extra_body"] = json.dumps({**extra, "seed": seed})
    return {**params, "metadata": metadata}


def _some(indices: Sequence[int]) -> str:
    listed = ", ".join(str(index) for index in indices[:_LISTED])
    return listed if len(indices) <= _LISTED else f"{listed} and {len(indices) - _LISTED} more"
