"""What a run is made of, as it stands in the ``run`` lines of its journal: a resume compares it with what it is asked.

Only what decides which rows are sent and what answers them. How many at a time, time limits and where the files are may change between
a run and its resume; so may addresses and secrets of servers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict

from gym_compose.wire.references import server_blocks
from gym_compose.wire.run import RunRequest

_ROW_FIELDS = (
    "agent_name",
    "environment_routing_mode",
    "environment_server_name",
    "environment_server_routes",
    "limit",
    "num_repeats",
    "num_repeats_add_seed",
    "interleave_repeats",
    "responses_create_params",
    "agent_map",
    "fan_out",
    "prompt",
    "skills_ref",
)
_CHANGES_FREELY = frozenset(("host", "port", "num_workers", "datasets"))
"""Fields of a server's block that are where it is, or data that the input holds already."""
_SECRET = re.compile(r"(?:^|_)(?:api_key|key|token|password|passwd|secret|credentials?)$", re.IGNORECASE)
_CHUNK = 1 << 20
_SHOWN = 60


class Fingerprint:
    """Size, lines and SHA-256 of what it is fed."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.size = 0
        self.lines = 0

    def feed(self, line: bytes) -> None:
        """One line, with its newline."""
        self._digest.update(line)
        self.size += len(line)
        self.lines += 1

    def facts(self, *, whole: bool = True) -> FileFacts:
        return FileFacts(size=self.size, lines=self.lines, sha256=self._digest.hexdigest(), whole=whole)


class FileFacts(BaseModel):
    """A file, or with ``whole`` False its first ``size`` bytes (``limit`` ends the reading)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size: int
    lines: int
    sha256: str
    whole: bool = True

    def describes(self, path: Path) -> bool:
        """Whether the file is still the one. Raises OSError."""
        size = path.stat().st_size
        if size < self.size or (self.whole and size != self.size):
            return False
        digest, left = hashlib.sha256(), self.size
        with path.open("rb") as file:
            while left and (chunk := file.read(min(left, _CHUNK))):
                digest.update(chunk)
                left -= len(chunk)
        return digest.hexdigest() == self.sha256


class RunManifest(BaseModel):
    """``rows``: the fields of the request that make rows; ``servers``: a digest of each field of each server that the rows reach."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: dict[str, Any]
    servers: dict[str, dict[str, str]]
    input: FileFacts | None = None
    """None: made by NeMo Gym, which does not note it."""
    materialized: FileFacts


def row_fields(request: RunRequest, routes: Mapping[str, str] | None) -> dict[str, Any]:
    """The part of a request that makes rows; ``routes`` are those that apply, whoever gave them. The path of a prompt is no part of it."""
    values = {name: getattr(request, name) for name in _ROW_FIELDS}
    values["environment_server_routes"] = dict(sorted((routes or {}).items()))
    values["prompt"] = None if request.prompt is None else {"user": request.prompt.user, "system": request.prompt.system}
    return values


def server_fields(config: Mapping[str, Any], environment_servers: Iterable[str]) -> dict[str, dict[str, str]]:
    """Digests of the fields of these servers and of all that they refer to, directly or not; names sorted."""
    blocks = {block.instance: block for block in server_blocks(config)}
    found: dict[str, dict[str, str]] = {}
    waiting = [name for name in environment_servers if name in blocks]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        block = blocks[name]
        kept = {key: value for key, value in _without_secrets(block.fields).items() if key not in _CHANGES_FREELY}
        found[name] = {"type": _digest(f"{block.server_type}/{block.implementation}")} | {key: _digest(kept[key]) for key in sorted(kept)}
        waiting.extend(reference for reference in _named(kept) if reference in blocks)
    return dict(sorted(found.items()))


def row_changes(first: RunManifest, rows: Mapping[str, Any]) -> tuple[str, ...]:
    """Which fields that make rows differ between the first run and now, one line each."""
    return tuple(
        f"{name}: it was {_shown(first.rows.get(name))}, now it is {_shown(rows.get(name))}"
        for name in sorted(first.rows.keys() | rows.keys())
        if first.rows.get(name) != rows.get(name)
    )


def server_changes(first: RunManifest, servers: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """Which servers differ, and in which fields."""
    found = []
    for name in sorted(first.servers.keys() | servers.keys()):
        before, now = first.servers.get(name), servers.get(name)
        if before is None or now is None:
            found.append(f"server {name!r} {'takes part now and did not' if before is None else 'took part and does not now'}")
            continue
        fields = [field for field in sorted(before.keys() | now.keys()) if before.get(field) != now.get(field)]
        if fields:
            found.append(f"server {name!r}: {', '.join(fields)}")
    return tuple(found)


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _without_secrets(item) for key, item in value.items() if not _SECRET.search(str(key))}
    return [_without_secrets(item) for item in value] if isinstance(value, list) else value


def _named(value: Any) -> Iterable[str]:
    """Every ``name`` in nested mappings and lists: what refers to a server has one."""
    if isinstance(value, Mapping):
        name = value.get("name")
        if isinstance(name, str):
            yield name
        for item in value.values():
            yield from _named(item)
    elif isinstance(value, list):
        for item in value:
            yield from _named(item)


def _digest(value: Any) -> str:
    data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str)
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _shown(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
