"""``gym list TYPE [NAME]`` and ``gym search [TYPE] QUERY`` (contract-config 2.4): JSON shapes are NeMo Gym's."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gym_compose.cli import catalog
from gym_compose.cli.console import Console
from gym_compose.cli.translate import Invocation

_CUTOFF = 0.70
_FILTERS = ("domain", "kind", "modality", "licensing", "status", "lifecycle")


@dataclass(frozen=True)
class Request:
    """What was asked for. ``filters``: field of a workload to the value that it must have."""

    roots: Sequence[Path]
    console: Console
    name: str | None
    filters: Mapping[str, str]


@dataclass(frozen=True)
class Listing:
    """What one kind of component looks like: rows for JSON, columns for a table, and one component in full."""

    noun: str
    plural: str
    rows: list[dict[str, Any]]
    columns: tuple[tuple[str, str], ...]
    searched: Callable[[Mapping[str, Any]], tuple[str, ...]]
    inspect: Callable[[str], dict[str, Any]]


def run(call: Invocation, console: Console) -> int:
    """List, show one or search; 1 for a name that is not there."""
    kind = call.name.partition(" ")[2] or call.args.component_type or "environments"
    name, query = getattr(call.args, "name", None), getattr(call.args, "query", None)
    given = {key: getattr(call.args, key, None) for key in _FILTERS}
    if getattr(call.args, "component_type", None) == "environments":  # said so in a search, it means the kind; in a list, the catalog
        given["kind"] = "environment"
    request = Request(component_roots(call), console, name, {key: value for key, value in given.items() if value is not None})
    listing = _LISTINGS[kind](request)
    if name:
        return show_one(listing.inspect(name), console, json=call.json)
    rows = [row for row in listing.rows if not query or matches(query, *listing.searched(row))]
    if call.json:
        console.json(rows)
    elif not rows:
        console.out(f"No {listing.plural} match '{query}'." if query else f"No {listing.plural} found.")
    else:
        title = f"{listing.plural} matching '{query}' ({len(rows)})" if query else f"{listing.plural} ({len(rows)})"
        cells = [[_cell(row.get(key)) for key, _ in listing.columns] for row in rows]
        console.table([heading for _, heading in listing.columns], cells, title=title)
    return 0


def matches(query: str, *fields: str) -> bool:
    """Whether the query is part of a field, or close (0.70) to one or to one of its words; case does not count."""
    needle = query.lower()
    for text in filter(None, fields):
        haystack = text.lower()
        words = haystack.replace("_", " ").replace("-", " ").split()
        if needle in haystack or difflib.get_close_matches(needle, [haystack, *words], n=1, cutoff=_CUTOFF):
            return True
    return False


def _workloads(request: Request, kind: str | None) -> Listing:
    everything = found = catalog.workloads(request.roots)
    wanted = {"kind": kind, **request.filters}
    if not request.name:
        for key, value in wanted.items():
            if value is None:
                continue
            without = sum(getattr(workload, key) is None for workload in found)
            if without and key != "status":
                request.console.err(f"Warning: {without} entries have no {key} and are left out.")
            found = [workload for workload in found if getattr(workload, key) == value]

    def inspect(name: str) -> dict[str, Any]:
        return _workload_in_full(name, wanted["kind"], everything)

    columns = (("name", "Name"), ("kind", "Kind"), ("status", "Status"), ("lifecycle", "Lifecycle"), ("domain", "Domain"))
    return Listing(
        "environment",
        f"{kind}s" if kind else "environments",
        [_workload_row(workload) for workload in found],
        (*columns, ("description", "Description")),
        _name_and_text,
        inspect,
    )


def _workload_row(workload: catalog.Workload) -> dict[str, Any]:
    row = {
        "name": workload.name,
        "kind": workload.kind,
        "status": workload.status,
        "domain": workload.domain,
        "description": workload.description,
        "version": workload.version,
        "integration_profile": workload.integration_profile,
        "modality": workload.modality,
        "licensing": workload.licensing,
        "lifecycle": workload.lifecycle,
    }
    if workload.status is None:
        del row["status"]
    return row


def _workload_in_full(name: str, kind: str | None, found: Sequence[catalog.Workload]) -> dict[str, Any]:
    workload = catalog.find_workload(name, kind, found)
    details: dict[str, str] = {"config": str(workload.config.resolve())}
    fields = {
        "status": workload.status,
        "manifest": str(workload.manifest.resolve()) if workload.manifest else None,
        "version": workload.version,
        "profile": workload.integration_profile,
        "modality": workload.modality,
        "licensing": workload.licensing,
        "lifecycle": workload.lifecycle,
    }
    blocks = catalog.blocks(workload.config)
    agents = [block for block in blocks if block.server_type == "responses_api_agents"]
    fields["resources servers"] = ", ".join(block.implementation for block in blocks if block.server_type == "resources_servers")
    fields["agent"] = agents[0].implementation if agents else None
    fields["datasets"] = ", ".join(str(data["name"]) for block in agents for data in catalog.datasets(block) if data.get("name"))
    details.update({label: value for label, value in fields.items() if value})
    selector = f"--resources-server {workload.selector}" if workload.selector else f"--{workload.kind} {name}"
    return {
        "name": name,
        "type": workload.kind,
        "domain": workload.domain,
        "description": _with_value(workload.description, blocks),
        "details": details,
        "usage_example": f"gym env start {selector} --model-type openai_model",
    }


def _agents(request: Request) -> Listing:
    found = catalog.agents(request.roots)

    def inspect(name: str) -> dict[str, Any]:
        agent = _known("agent", name, found)
        details = {"path": str(agent.path.resolve()), "composition": "self-contained (B)" if agent.self_contained else "composable (A)"}
        if agent.variants:
            details["variants"] = ", ".join(agent.variants)
        return {"name": name, "type": "agent", "domain": None, "description": agent.description, "details": details, "usage_example": None}

    rows = [
        {
            "name": agent.name,
            "pattern": "B (self-contained)" if agent.self_contained else "A (composable)",
            "self_contained": agent.self_contained,
            "variants": sorted(agent.variants),
            "description": agent.description,
        }
        for agent in found.values()
    ]
    columns = (("name", "Agent"), ("pattern", "Composition"), ("variants", "Variants"), ("description", "Description"))
    return Listing("agent", "agents", rows, columns, lambda row: (row["name"], row["description"] or "", *row["variants"]), inspect)


def _models(request: Request) -> Listing:
    found = catalog.models(request.roots)

    def inspect(name: str) -> dict[str, Any]:
        model = _known("model", name, found)
        usage = f"gym env start --resources-server example_single_tool_call --model-type {name}"
        details = {"config": str(model.config.resolve())}
        return {"name": name, "type": "model", "domain": None, "description": None, "details": details, "usage_example": usage}

    rows = [{"name": model.name, "model": model.name, "model_group": model.group} for model in found.values()]
    columns = (("model", "Model"), ("model_group", "Model group"))
    return Listing("model", "models", rows, columns, lambda row: (row["model"], row["model_group"]), inspect)


def _resources_servers(request: Request) -> Listing:
    found = catalog.resources_servers(request.roots)

    def inspect(name: str) -> dict[str, Any]:
        server = _known("resources server", name, found)
        return {
            "name": name,
            "type": "resources server",
            "domain": server.domain,
            "description": _with_value(server.description, catalog.blocks(server.config)),
            "details": {"config": str(server.config.resolve())},
            "usage_example": f"gym env start --resources-server {name} --model-type openai_model",
        }

    rows = [{"name": server.name, "domain": server.domain, "description": server.description} for server in found.values()]
    columns = (("name", "Name"), ("domain", "Domain"), ("description", "Description"))
    return Listing("resources server", "resources servers", rows, columns, _name_and_text, inspect)


_LISTINGS: dict[str, Callable[[Request], Listing]] = {
    "environments": lambda request: _workloads(request, None),
    "benchmarks": lambda request: _workloads(request, "benchmark"),
    "agents": _agents,
    "models": _models,
    "resources-servers": _resources_servers,
}


def _name_and_text(row: Mapping[str, Any]) -> tuple[str, ...]:
    return row["name"], row["domain"] or "", row["description"] or ""


def _known(noun: str, name: str, found: Mapping[str, Any]) -> Any:
    if name not in found:
        raise catalog.unknown(noun, name, list(found))
    return found[name]


def _with_value(description: str | None, blocks: Sequence[catalog.ServerBlock]) -> str | None:
    values = [block.fields.get("value") for block in blocks if block.server_type == "resources_servers"]
    value = next((str(value) for value in values if value), None)
    if value is None:
        return description
    return f"{description}\nValue: {value}" if description else f"Value: {value}"


def show_one(view: Mapping[str, Any], console: Console, *, json: bool) -> int:
    """Print one component: its view as JSON, or as sections of text. Returns 0."""
    if json:
        console.json(view)
        return 0
    sections = [f"The {view['name']} {view['type']}" + (f" (domain: {view['domain']})" if view["domain"] else "")]
    if view["description"]:
        sections.append(view["description"])
    if view["details"]:
        sections.append("Details:\n" + "\n".join(f"{label}: {value}" for label, value in view["details"].items()))
    if view["usage_example"]:
        sections.append(f"Usage example:\n{view['usage_example']}")
    console.out("\n\n".join(sections))
    return 0


def _cell(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else "" if value is None else str(value)


def component_roots(call: Invocation) -> tuple[Path, ...]:
    """Where relative paths of components, datasets, inputs and prompts are looked for."""
    from gym_compose.config.roots import installed_root, last_roots, search_roots

    return search_roots(call.cwd, call.environ, last=last_roots(installed_root()))
