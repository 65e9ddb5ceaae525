#!/usr/bin/env python3
"""Adds to config files the environment servers that their agents need (contract-data 5).

    python add_legacy_agent_environment_servers.py [PATH ...] [--check] [--json] [--search-dir DIR]

Stands alone: the standard library and PyYAML. A directory is walked for ``*.yaml`` and ``*.yml``; without a PATH the component
directories of the working directory are taken. Blocks are appended, what stands in a file stays byte for byte; a second run adds nothing.

Exit status: 2 when a file cannot be read or a rename has to be edited by hand, 1 when ``--check`` would add something, else 0.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

AGENTS = "responses_api_agents"
ENVIRONMENTS = "environment_servers"
AGENT_FIELD = "agent_server"
RELAY = "legacy_agent"
SUFFIX = "_environment_server"
MISSING = "???"
COMPONENTS = ("benchmarks", "environments", "resources_servers", "responses_api_agents", "responses_api_models")
NATIVE_AGENTS = frozenset({"hermes_agent"})
"""Agents that run without a resources server: an explicit ``resources_server: null`` is a template of one."""
SKIPPED = frozenset({".venv", "site-packages"})
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def refers_to_agent(name: str, reference: Any) -> bool:
    """Whether a field of an environment server refers to an agent: by its ``type``, or as ``agent_server`` without one.

    The parser has the same rule in ``wire.references``; a test holds both against each other.
    """
    if not isinstance(reference, Mapping):
        return False
    kind = reference.get("type")
    return kind == AGENTS or (name == AGENT_FIELD and kind in (None, MISSING))


def relay_name(agent: str, agent_type: str) -> str:
    """The name of the environment server that is made for an agent (contract-data 5.4)."""
    stem = agent.removesuffix(f"_{agent_type}").removesuffix(agent_type).rstrip("_")
    if stem == agent:
        stem = agent.removesuffix("_agent").rstrip("_")
    return f"{stem or agent_type}{SUFFIX}"


@dataclass(frozen=True)
class Agent:
    """One top-level block that is an agent or takes its content from one."""

    name: str
    agent_type: str | None
    body: Mapping[str, Any]
    source: str | None
    """Where its content comes from: ``_inherit_from`` or ``_copy``."""
    moves: bool
    """Whether the source is gone afterwards."""


@dataclass(frozen=True)
class Reference:
    """One field of an environment server that names an agent."""

    server: str
    server_type: str
    field: str
    agent: str

    @property
    def key(self) -> str:
        return f"{self.server}.{ENVIRONMENTS}.{self.server_type}.{self.field}.name"


@dataclass(frozen=True, eq=False)
class Document:
    """A config file that was read."""

    path: Path
    data: Mapping[str, Any]

    @cached_property
    def agents(self) -> dict[str, Agent]:
        return {agent.name: agent for name, block in self.data.items() if (agent := _agent(str(name), block)) is not None}

    @cached_property
    def includes(self) -> tuple[str, ...]:
        paths = self.data.get("config_paths")
        return tuple(str(path) for path in paths) if isinstance(paths, list) else ()

    @cached_property
    def moved(self) -> frozenset[str]:
        """Agents that another block of this file takes over."""
        return frozenset(agent.source for agent in self.agents.values() if agent.moves and agent.source is not None)

    def declares(self, name: str) -> bool:
        agent = self.agents.get(name)
        return agent is not None and (agent.source is not None or "entrypoint" in agent.body)


@dataclass(frozen=True)
class Block:
    """What is appended: ``kind`` is declared, inherited or retarget (contract-data 5.5)."""

    kind: str
    name: str
    content: Mapping[str, Any]

    @property
    def text(self) -> str:
        return yaml.safe_dump({self.name: self.content}, sort_keys=False, allow_unicode=True, default_flow_style=False)


@dataclass(frozen=True)
class Change:
    """What one file needs."""

    path: Path
    blocks: tuple[Block, ...]
    manual: tuple[tuple[str, str], ...] = ()
    """(dotted key, the name of the agent that it has to have)."""


@dataclass
class Index:
    """All files that are known: the targets and what they may build upon."""

    documents: list[Document]
    _generating: dict[Document, list[Agent]] = field(default_factory=dict)

    @cached_property
    def _by_agent(self) -> dict[str, list[Document]]:
        found: dict[str, list[Document]] = defaultdict(list)
        for document in self.documents:
            for name in document.agents:
                found[name].append(document)
        return found

    @cached_property
    def _blocks(self) -> dict[str, list[Mapping[str, Any]]]:
        """Environment server blocks of every file, by name."""
        found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for document in self.documents:
            for name, block in document.data.items():
                if isinstance(block, Mapping) and isinstance(block.get(ENVIRONMENTS), Mapping):
                    found[str(name)].append(block)
        return found

    @cached_property
    def _references(self) -> dict[str, list[tuple[Document, Reference]]]:
        found: dict[str, list[tuple[Document, Reference]]] = defaultdict(list)
        for document in self.documents:
            for reference in self._in_document(document):
                found[reference.agent].append((document, reference))
        return found

    def _in_document(self, document: Document) -> Iterator[Reference]:
        for server, block in document.data.items():
            servers = block.get(ENVIRONMENTS) if isinstance(block, Mapping) else None
            for server_type, fields in servers.items() if isinstance(servers, Mapping) else ():
                for name, value in fields.items() if isinstance(fields, Mapping) else ():
                    agent = value.get("name") if isinstance(value, Mapping) else None
                    if isinstance(agent, str) and self._refers(str(server), block, str(server_type), str(name), value):
                        yield Reference(str(server), str(server_type), str(name), agent)

    def _refers(self, server: str, block: Mapping[str, Any], server_type: str, name: str, value: Mapping[str, Any]) -> bool:
        """An overlay need not repeat the type of a field: then that of the block below it, or of the one it inherits, counts."""
        if refers_to_agent(name, value):
            return True
        if value.get("type") is not None:
            return False
        below = [*self._blocks.get(server, ()), *self._blocks.get(str(block.get("_inherit_from")), ())]
        candidates = (other[ENVIRONMENTS].get(server_type) for other in below)
        return any(isinstance(other, Mapping) and refers_to_agent(name, other.get(name)) for other in candidates)

    @cached_property
    def _reached(self) -> dict[Document, frozenset[Document]]:
        by_name: dict[str, list[Document]] = defaultdict(list)
        for document in self.documents:
            by_name[document.path.name].append(document)
        direct = {
            document: {
                other
                for path in document.includes
                for other in by_name[Path(path).name]
                if other.path.as_posix().endswith(f"/{path.lstrip('./')}")
            }
            for document in self.documents
        }
        reach = {}
        for document in self.documents:
            seen: set[Document] = set()
            waiting = [document]
            while waiting:
                new = direct[waiting.pop()] - seen
                seen |= new
                waiting.extend(new)
            reach[document] = frozenset(seen - {document})
        return reach

    def reach(self, document: Document) -> frozenset[Document]:
        """The files that a file includes, however deep."""
        return self._reached[document]

    def _joined(self, one: Document, other: Document) -> bool:
        """Whether one of the two is loaded with the other."""
        return one is other or other in self.reach(one) or one in self.reach(other)

    def fronted(self, name: str, document: Document) -> bool:
        """Whether a server names this file's agent: one of a file that is loaded with it, or that has no such agent of its own."""
        return any(self._joined(document, other) or not other.declares(name) for other, _ in self._references.get(name, ()))

    def references(self, name: str, document: Document) -> list[Reference]:
        """Fields that name an agent which this file does not have: those of files that are loaded with it, else of any."""
        found = self._references.get(name, ())
        near = [reference for other, reference in found if self._joined(document, other)]
        return list(dict.fromkeys(near or (reference for _, reference in found)))

    def source(self, agent: Agent, document: Document) -> tuple[Document, Agent] | None:
        """The agent that a block takes its content from, and its file: this one, else one that is loaded with it, else any."""
        candidates = self._by_agent.get(agent.source or "", [])
        ranked = sorted(candidates, key=lambda other: 0 if other is document else 1 if self._joined(document, other) else 2)
        for other in ranked:
            found = other.agents[str(agent.source)]
            if found is not agent:
                return other, found
        return None

    def below(self, agent: Agent, document: Document) -> tuple[Document, Agent] | None:
        """The agent of the same name in a file that this one includes, if this one only lays something over it."""
        if agent.source is not None or "entrypoint" in agent.body:
            return None
        included = (other for other in self._by_agent.get(agent.name, ()) if other in self.reach(document))
        return next(((other, other.agents[agent.name]) for other in included if other.declares(agent.name)), None)

    def whole(self, agent: Agent, document: Document, _seen: frozenset[int] = frozenset()) -> tuple[str | None, Mapping[str, Any]]:
        """Type and content of an agent with what it inherits or lies over; no type when the source is not known."""
        if id(agent) in _seen:
            return agent.agent_type, agent.body
        found = self.below(agent, document) if agent.source is None else self.source(agent, document)
        if found is None:
            # What an unknown source has cannot be seen; an agent with content of its own says by it that there is one.
            return agent.agent_type, agent.body if agent.source is None else {"entrypoint": None, **agent.body}
        inherited_type, inherited = self.whole(found[1], found[0], _seen | {id(agent)})
        body = {**inherited, **agent.body}
        below, above = inherited.get("resources_server"), agent.body.get("resources_server")
        if isinstance(below, Mapping) and isinstance(above, Mapping):
            body["resources_server"] = {**below, **above}
        return agent.agent_type or inherited_type, body

    def needs_server(self, agent: Agent, document: Document) -> bool:
        """Whether rollouts of this agent need a server (contract-data 5.3), whoever names it already."""
        agent_type, body = self.whole(agent, document)
        if agent_type is None or "entrypoint" not in body:
            return False
        resources = body.get("resources_server", {})
        if isinstance(resources, Mapping):
            return resources.get("name") != MISSING
        return not (resources is None and agent_type in NATIVE_AGENTS)

    def generating(self, document: Document) -> list[Agent]:
        """The agents of a file that get a server of their own in it, in its order."""
        if document not in self._generating:
            self._generating[document] = []
            self._generating[document] = [agent for agent in document.agents.values() if self._gets_own(agent, document)]
        return self._generating[document]

    def _gets_own(self, agent: Agent, document: Document) -> bool:
        if self.fronted(agent.name, document) or agent.name in document.moved or not self.needs_server(agent, document):
            return False
        below = self.below(agent, document)
        if below is not None and self.needs_server(below[1], below[0]):
            return False  # it gets its server there
        return not (agent.moves and agent.source is not None and self.references(agent.source, document))

    def names(self, document: Document) -> dict[str, str]:
        """Agent to the name of the server that it gets in this file; those whose short name is not theirs alone get their full one."""
        wanted = {agent.name: relay_name(agent.name, self.whole(agent, document)[0] or "") for agent in self.generating(document)}
        often = Counter(wanted.values())
        return {agent: name if often[name] == 1 else f"{agent}{SUFFIX}" for agent, name in wanted.items()}

    def change(self, document: Document) -> Change:
        """What a file needs (contract-data 5.6)."""
        names = self.names(document)
        blocks = []
        retargets: dict[str, dict[str, dict[str, Any]]] = {}
        manual: list[tuple[str, str]] = []
        for agent in document.agents.values():
            if agent.name in names:
                if names[agent.name] not in document.data:
                    blocks.append(self._own_block(agent, document, names[agent.name]))
            elif agent.moves and agent.source is not None and not self.fronted(agent.name, document):
                for reference in self.references(agent.source, document):
                    if reference.server in document.data:
                        manual.append((reference.key, agent.name))
                    else:
                        fields = retargets.setdefault(reference.server, {}).setdefault(reference.server_type, {})
                        fields[reference.field] = {"type": AGENTS, "name": agent.name}
        blocks += [Block("retarget", server, {ENVIRONMENTS: types}) for server, types in retargets.items()]
        return Change(document.path, tuple(blocks), tuple(manual))

    def _own_block(self, agent: Agent, document: Document, name: str) -> Block:
        found = self.source(agent, document) if agent.moves else None
        if found is not None and found[0] is not document:
            inherited = self.names(found[0]).get(found[1].name)
            if inherited is not None and inherited != name:
                renamed = {RELAY: {AGENT_FIELD: {"name": agent.name}}}
                return Block("inherited", name, {"_inherit_from": inherited, ENVIRONMENTS: renamed})
        relay = {RELAY: {"entrypoint": "app.py", AGENT_FIELD: {"type": AGENTS, "name": agent.name}}}
        return Block("declared", name, {ENVIRONMENTS: relay})


def _agent(name: str, block: Any) -> Agent | None:
    """An agent, a rename or a copy of one; None for any other block."""
    if isinstance(block, str):
        for form, moves in (("${inherit_from:", True), ("${copy:", False)):
            if block.startswith(form):
                return Agent(name, None, {}, block.removeprefix(form).removesuffix("}"), moves)
        return None
    if not isinstance(block, Mapping):
        return None
    inherited, copied = block.get("_inherit_from"), block.get("_copy")
    source = inherited if isinstance(inherited, str) else copied if isinstance(copied, str) else None
    agents = block.get(AGENTS)
    if isinstance(agents, Mapping) and len(agents) == 1:
        [(agent_type, body)] = agents.items()
        return Agent(name, str(agent_type), body, source, source == inherited) if isinstance(body, Mapping) else None
    if source is not None and set(block) <= {"_inherit_from", "_copy"}:
        return Agent(name, None, {}, source, source == inherited)
    return None


def read(path: Path) -> Document | None:
    """None for a document that is not a mapping. Raises OSError, ValueError, yaml.YAMLError."""
    data = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)
    return Document(path, data) if isinstance(data, Mapping) else None


def files(path: Path) -> Iterator[Path]:
    """A file as it is; of a directory its ``*.yaml``, then ``*.yml``, each sorted."""
    if not path.is_dir():
        yield path
        return
    for ending in ("*.yaml", "*.yml"):
        for found in sorted(path.rglob(ending)):
            if found.is_file() and not SKIPPED & set(found.relative_to(path).parts):
                yield found


def components(root: Path) -> list[Path]:
    """The component directories of a tree that are there."""
    return [root / name for name in COMPONENTS if (root / name).is_dir()]


def append(change: Change) -> None:
    """Write the file with its blocks. Raises ValueError when text after its end would not mean what it says (a flow mapping), OSError."""
    path = Path(os.path.realpath(change.path))
    old = path.read_bytes()
    end = b"\r\n" if b"\r\n" in old else b"\n"
    added = b"".join(end + block.text.encode().replace(b"\n", end) for block in change.blocks)
    new = old + (b"" if old.endswith(b"\n") else end) + added
    expected = {**yaml.load(old, Loader=_LOADER), **{block.name: block.content for block in change.blocks}}
    try:
        sound = yaml.load(new, Loader=_LOADER) == expected
    except yaml.YAMLError:
        sound = False
    if not sound:
        raise ValueError("nothing can be appended to this layout: add the blocks by hand")
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(new)
        shutil.copymode(path, part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


@dataclass
class Report:
    """What a run found and did."""

    changes: list[Change] = field(default_factory=list)
    unreadable: list[tuple[Path, str]] = field(default_factory=list)
    check: bool = False

    @property
    def changed(self) -> list[Change]:
        return [change for change in self.changes if change.blocks]

    @property
    def exit_code(self) -> int:
        if self.unreadable or any(change.manual for change in self.changes):
            return 2
        return 1 if self.check and self.changed else 0

    def document(self) -> dict[str, Any]:
        """The report as JSON data."""
        return {
            "check": self.check,
            "exit_code": self.exit_code,
            "files": [
                {
                    "path": str(change.path),
                    "blocks": [{"kind": block.kind, "name": block.name, "text": block.text} for block in change.blocks],
                    "manual": [{"key": key, "agent": agent} for key, agent in change.manual],
                }
                for change in self.changes
            ],
            "unreadable": [{"path": str(path), "reason": reason} for path, reason in self.unreadable],
        }

    def print(self) -> None:
        verb = "would add" if self.check else "added"
        for change in self.changed:
            print(f"{change.path}: {verb} {_count(len(change.blocks), 'block')}: {', '.join(block.name for block in change.blocks)}")
        for path, reason in self.unreadable:
            print(f"{path}: {reason}", file=sys.stderr)
        manual = [(change.path, key, agent) for change in self.changes for key, agent in change.manual]
        for path, key, agent in manual:
            print(f"{path}: an agent was renamed that a server of the same file names: set {key} to {agent!r}", file=sys.stderr)
        blocks = sum(len(change.blocks) for change in self.changed)
        print(
            f"{_count(len(self.changed), 'file')}, {verb} {_count(blocks, 'block')}; {len(self.unreadable)} unreadable, "
            f"{len(manual)} to be edited by hand"
        )


def migrate(paths: Sequence[Path], roots: Iterable[Path], *, check: bool) -> Report:
    """Migrate ``paths`` (files, directories); ``roots`` are trees whose component configs are known too, and only read."""
    report = Report(check=check)
    documents: dict[Path, Document] = {}
    targets: list[Document] = []
    seen: set[Path] = set()
    for path in (found for given in paths for found in files(given)):
        real = path.resolve()
        if real in seen:
            continue
        seen.add(real)
        try:
            document = read(path)
        except (OSError, ValueError, yaml.YAMLError) as error:
            report.unreadable.append((path, f"cannot be read: {' '.join(str(error).split())}"))
            continue
        if document is not None:
            documents[real] = document
            targets.append(document)
    for path in (found for root in roots for component in components(root) for found in files(component)):
        real = path.resolve()
        if real not in seen:
            seen.add(real)
            try:
                document = read(path)
            except (OSError, ValueError, yaml.YAMLError):
                continue  # not what was asked for: a broken file elsewhere must not keep this one from being migrated
            if document is not None:
                documents[real] = document
    index = Index(list(documents.values()))
    for target in targets:
        change = index.change(target)
        if not change.blocks and not change.manual:
            continue
        if change.blocks and not check:
            try:
                append(change)
            except (OSError, ValueError) as error:
                report.unreadable.append((target.path, str(error)))
                continue
        report.changes.append(change)
    return report


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH", help="config file or directory (default: the component directories here)"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when something would be added")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON document")
    parser.add_argument("--search-dir", action="append", type=Path, default=[], metavar="DIR", help="a tree whose configs are known too")
    arguments = parser.parse_args(argv)
    here = Path.cwd()
    paths = arguments.paths or components(here)
    report = migrate(paths, [here, *arguments.search_dir], check=arguments.check)
    if arguments.json:
        print(json.dumps(report.document(), indent=2))
    else:
        report.print()
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
